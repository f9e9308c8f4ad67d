"""A whole run: recipe in, artifacts, report and verdict out."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from quantflow.errors import QuantFlowError, RecipeError, StoreError
from quantflow.formats.assembly import load_assembly
from quantflow.pipeline.deadline import Deadline
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.events import Event
from quantflow.pipeline.graph import build_graph
from quantflow.pipeline.machine import find_machine
from quantflow.pipeline.publish import publish
from quantflow.pipeline.runner import StageOutcome, run_stages
from quantflow.pipeline.stage import Stage
from quantflow.pipeline.store import Store
from quantflow.pipeline.summary import artifact_path, build_report, provenance
from quantflow.pipeline.terminal import QuietTerminal, Terminal
from quantflow.recipe.schema import Recipe
from quantflow.report.model import Report
from quantflow.report.write import write_report

WORKSPACE = ".quantflow"


@dataclass(frozen=True)
class RunResult:
    """What a run came to.

    Attributes:
        report: The content of `report.json`.
        report_folder: Where `report.json` and `report.html` are, absolute.
        errors: What kept stages from finishing; empty where all did.
    """

    report: Report
    report_folder: Path
    errors: tuple[QuantFlowError, ...]

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 2 error, 3 inconclusive."""
        return self.report.exit_code


def run(
    recipe: Recipe,
    *,
    folder: Path | None = None,
    terminal: Terminal | None = None,
    overrides: Sequence[str] = (),
    verify: bool = False,
    time_limit: float | None = None,
) -> RunResult:
    """Run a recipe: whatever is in the store already is taken from there.

    Args:
        recipe: A loaded recipe.
        folder: Where `.quantflow/`, `artifacts/` and `reports/` lie; the working directory if None.
        terminal: Where progress is shown; nowhere if None.
        overrides: The `--set` that the recipe was loaded with, for the report.
        verify: Read every stored and external file again instead of trusting its size and time.
        time_limit: Seconds after which the run stops, resumable; None for none.

    Raises:
        DeadlineError: The time limit is reached.
        RecipeError: The recipe asks for what is not there or not possible for this model.
        StoreError: The workspace, the artifacts' or the reports' folder cannot be written.
    """
    folder = (folder or Path.cwd()).resolve()
    shown = terminal or QuietTerminal()
    began, started = datetime.now(UTC), time.monotonic()
    deadline = Deadline(time_limit)
    try:
        machine = find_machine(recipe.runtime.device)
    except RecipeError as error:
        raise _placed(error, recipe) from error
    workspace = _prepare(folder / WORKSPACE)
    digests = DigestCache(workspace / "digests.json", trust=not verify)
    with shown:
        stages = build_graph(recipe, machine, digests)
        digests.save()
        outcomes = run_stages(
            stages,
            machine,
            Store(workspace / "store"),
            shown,
            deadline=deadline,
            unchanged=partial(check_unchanged, stages, digests),
            verify=verify,
        )
    for outcome in outcomes:
        if isinstance(outcome.error, RecipeError):
            raise _placed(outcome.error, recipe)
    noticed = _publish_artifacts(recipe, outcomes, folder, verify=verify)
    run_id = f"{began:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    times: dict[str, JsonValue] = {
        "started": began.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - started, 3),
    }
    report = build_report(
        recipe, outcomes, noticed, run_id, provenance(recipe, overrides, outcomes, machine, times)
    )
    report_folder = folder / "reports" / recipe.name / run_id
    write_report(report, report_folder)
    return RunResult(report, report_folder, tuple(o.error for o in outcomes if o.error is not None))


def check_unchanged(stages: Sequence[Stage], digests: DigestCache) -> None:
    """Compare the files that stages read from outside the workspace with what their keys were computed from.

    Raises:
        StoreError: One has changed since the run began.
    """
    for stage in stages:
        for path, digest in stage.external.items():
            if digests.digest(Path(path)) != digest:
                raise StoreError(
                    "it changed while the run was under way; what was computed from it is not kept",
                    where=path,
                    hint="run again when it is at rest",
                )


def _placed(error: RecipeError, recipe: Recipe) -> RecipeError:
    """The same mistake with the line of the recipe that it is made in."""
    return RecipeError(error.message, where=recipe.place(error.where), hint=error.hint)


def _prepare(workspace: Path) -> Path:
    try:
        workspace.mkdir(parents=True, exist_ok=True)
        (workspace / ".gitignore").write_text("*\n")
    except OSError as error:
        raise StoreError(
            f"the workspace cannot be written: {error.strerror}",
            where=str(workspace),
            hint="run in a folder that you may write to",
        ) from error
    return workspace


def _publish_artifacts(
    recipe: Recipe, outcomes: Sequence[StageOutcome], folder: Path, *, verify: bool
) -> tuple[Event, ...]:
    assembled = {o.stage.artifact: o.stored for o in outcomes if o.stage.kind == "assemble"}
    noticed = []
    for artifact in recipe.artifacts:
        stored, path = assembled[artifact.name], artifact_path(recipe, artifact)
        if stored is not None:
            _publish_artifact(load_assembly(stored.folder).folder, folder / path, verify=verify)
        elif (folder / path).exists():
            message = f"What lies in {path} is of an earlier run: this one made no such artifact."
            noticed.append(
                Event(code="artifact-of-an-earlier-run", stage=f"assemble:{artifact.name}", message=message)
            )
    return tuple(noticed)


def _publish_artifact(stored: Path, target: Path, *, verify: bool) -> None:
    try:
        publish(stored, target, verify=verify)
    except OSError as error:
        raise StoreError(
            f"the artifact cannot be put there: {error.strerror}",
            where=str(target),
            hint="it is complete in the store; make room and run the same command again",
        ) from error
