"""Reads the report of an earlier run back."""

import glob
from pathlib import Path

from pydantic import ValidationError

from quantflow.errors import RecipeError, StoreError
from quantflow.report.model import Report
from quantflow.report.write import JSON_FILE


def find_report(run: str, folder: Path) -> Path:
    """The folder of a run's report.

    Args:
        run: A report's folder or report.json, or a run's id or its beginning.
        folder: Where `reports/` lies.

    Raises:
        RecipeError: There is no such report, or there are several.
    """
    given = folder / run
    if given.name == JSON_FILE and given.is_file():
        return given.parent
    if (given / JSON_FILE).is_file():
        return given
    pattern = f"*/{glob.escape(run)}*/{JSON_FILE}"
    found = sorted(path.parent for path in (folder / "reports").glob(pattern)) if run.strip("./") else []
    exact = [path for path in found if path.name == run]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if found:
        names = ", ".join(path.name for path in found)
        raise RecipeError("several runs begin like this", where=run, hint=f"One of {names}.")
    raise RecipeError(
        "there is no report of such a run",
        where=run,
        hint="Name a run id that `quantflow runs` lists, or the folder that holds its report.json.",
    )


def load_report(folder: Path) -> Report:
    """Read a report.

    Args:
        folder: Holds its report.json.

    Raises:
        StoreError: It cannot be read, or is none that this version knows.
    """
    path = folder / JSON_FILE
    try:
        return Report.model_validate_json(path.read_bytes())
    except OSError as error:
        raise StoreError(f"the report cannot be read: {error.strerror}", where=str(path)) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise StoreError(
            f"this is not a report that this version can read ({place}: {first['msg']})",
            where=str(path),
            hint="Render it with the version of QuantFlow that its provenance names.",
        ) from error
