"""Several recipes, one after another: what one computed serves the next, and none stops the others."""

import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from quantflow.errors import QuantFlowError, RecipeError
from quantflow.gate.verdict import Verdict
from quantflow.pipeline.deadline import DeadlineError
from quantflow.pipeline.run import RunResult
from quantflow.pipeline.storage import of_storage, storage_error
from quantflow.report.batch import RecipeOutcome

WORST_FIRST = (2, 4, 1, 3, 0)
"""Exit codes: error, recipe invalid, fail, inconclusive, pass."""
ERROR, INVALID = 2, 4


def worst(codes: Sequence[int]) -> int:
    """The worst of several exit codes; of none, an error."""
    return next((code for code in WORST_FIRST if code in codes), ERROR)


def run_each(
    paths: Sequence[Path], run: Callable[[Path, float | None], RunResult], time_limit: float | None
) -> tuple[RecipeOutcome, ...]:
    """Run every recipe, whatever becomes of the others.

    Args:
        paths: Recipe files.
        run: Loads and runs one within so many seconds.
        time_limit: Seconds for all of them together; None for no limit.

    Raises:
        KeyboardInterrupt: From outside; what is finished is kept.
    """
    end = None if time_limit is None else time.monotonic() + time_limit
    return tuple(_outcome(path, run, end) for path in paths)


def _outcome(path: Path, run: Callable[[Path, float | None], RunResult], end: float | None) -> RecipeOutcome:
    began = time.monotonic()
    left = None if end is None else end - began
    try:
        if left is not None and left <= 0:
            raise DeadlineError("not begun: the time limit for all recipes was reached before")
        result = run(path, left)
    except QuantFlowError as error:
        return _without_report(path, error.exit_code, str(error), began)
    except OSError as error:
        known = of_storage(error)
        said = str(error) if known is None else str(storage_error(known, path))
        return _without_report(path, ERROR, said, began)
    except Exception as error:  # a mistake of ours in one recipe is no reason to leave the others
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = f"unexpected {type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
        return _without_report(path, ERROR, f"{said}. This is a bug.", began)
    report = result.report
    return RecipeOutcome(
        recipe=str(path),
        run_id=report.run_id,
        verdict=report.verdict,
        exit_code=result.exit_code,
        reason=report.reason,
        seconds=round(time.monotonic() - began, 3),
        report=str(result.report_folder),
    )


def _without_report(path: Path, code: int, reason: str, began: float) -> RecipeOutcome:
    seconds = round(time.monotonic() - began, 3)
    return RecipeOutcome(
        recipe=str(path), verdict=Verdict.ERROR, exit_code=code, reason=reason, seconds=seconds
    )


def recipes_in(folder: Path) -> tuple[Path, ...]:
    """The recipes of a folder, by name.

    Raises:
        RecipeError: There is no such folder, or no recipe in it.
    """
    if not folder.is_dir():
        raise RecipeError(
            "there is no such folder", where=str(folder), hint="Name one with recipes (*.yaml)."
        )
    found = tuple(sorted(p for p in folder.iterdir() if p.suffix in (".yaml", ".yml") and p.is_file()))
    if not found:
        raise RecipeError("there are no recipes (*.yaml) in it", where=str(folder))
    return found
