"""A whole run: recipe in, artifacts, report and verdict out."""

import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from quantflow.errors import FitError, QuantFlowError, RecipeError, StoreError
from quantflow.formats.assembly import load_assembly
from quantflow.pipeline.afterwards import release, remember, with_history
from quantflow.pipeline.clean import sweep
from quantflow.pipeline.deadline import Deadline
from quantflow.pipeline.devices import decide
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.events import Event
from quantflow.pipeline.graph import build_graph
from quantflow.pipeline.history import OpenRecord, RunHistory
from quantflow.pipeline.machine import Machine, find_machine
from quantflow.pipeline.publish import publish
from quantflow.pipeline.runner import DAMAGED, StageOutcome, run_stages, stage_keys
from quantflow.pipeline.stage import Stage
from quantflow.pipeline.storage import explained_storage, remedy
from quantflow.pipeline.store import WORKSPACE, Store, prepare_workspace
from quantflow.pipeline.summary import artifact_path, build_report, provenance
from quantflow.pipeline.terminal import QuietTerminal, Terminal
from quantflow.plan.fit import Fit, find_fit, require_fit
from quantflow.plan.needs import find_needs
from quantflow.plan.size import readable
from quantflow.recipe.artifacts import ImportArtifact
from quantflow.recipe.schema import Recipe
from quantflow.report.model import Report
from quantflow.report.write import write_report


@dataclass(frozen=True)
class RunResult:
    """What a run came to.

    Attributes:
        report: The content of `report.json`.
        report_folder: Where `report.json` and `report.html` are, absolute.
        errors: What kept stages from finishing; empty where all did.
        verified: What was read again and how it was found, a sentence; empty where nothing was asked to be.
    """

    report: Report
    report_folder: Path
    errors: tuple[QuantFlowError, ...]
    verified: str = ""

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
    force: bool = False,
) -> RunResult:
    """Run a recipe: whatever is in the store already is taken from there.

    Args:
        recipe: A loaded recipe.
        folder: Where `.quantflow/`, `artifacts/` and `reports/` lie; the working directory if None.
        terminal: Where progress is shown; nowhere if None.
        overrides: The `--set` that the recipe was loaded with, for the report.
        verify: Read every stored and external file again instead of trusting its size and time.
        time_limit: Seconds after which the run stops, resumable; None for none.
        force: Run even where memory or disk are estimated not to be enough.

    Raises:
        DeadlineError: The time limit is reached.
        RecipeError: The recipe asks for what is not there or not possible for this model.
        FitError: Memory or disk are not enough for it, as far as can be told before.
        StoreError: The workspace, the artifacts' or the reports' folder cannot be written.
    """
    folder = (folder or Path.cwd()).resolve()
    began, started = datetime.now(UTC), time.monotonic()
    deadline = Deadline(time_limit)
    run_id = f"{began:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    try:
        machine = find_machine(recipe.runtime.device)
    except RecipeError as error:
        raise placed(error, recipe) from error
    workspace = prepare_workspace(folder / WORKSPACE)
    history = RunHistory(workspace)
    computing = decide(recipe.runtime.calibration_dtype, machine)
    recorded = history.recorded(run_id, recipe.name, recipe.path, computing)
    with recorded as record, explained_storage(folder):
        around = _Circumstances(machine, workspace, terminal or QuietTerminal(), deadline, verify, force)
        outcomes, verified = _outcomes(recipe, around, record)
        noticed = _publish_artifacts(recipe, outcomes, folder, verify=verify)
        times: dict[str, JsonValue] = {
            "started": began.isoformat(timespec="seconds"),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - started, 3),
        }
        made = provenance(recipe, overrides, outcomes, machine, times)
        report = with_history(build_report(recipe, outcomes, noticed, run_id, made), workspace)
        report_folder = folder / "reports" / recipe.name / run_id
        errors = tuple(outcome.error for outcome in outcomes if outcome.error is not None)
        _write(report, report_folder, errors)
        _finish(record, report, report_folder)
        remember(report, report_folder, workspace, around.terminal.say)
        release(recipe, report, folder, around.terminal.say)
    return RunResult(report, report_folder, errors, verified)


@dataclass(frozen=True)
class _Circumstances:
    """What a recipe is run with and within."""

    machine: Machine
    workspace: Path
    terminal: Terminal
    deadline: Deadline
    verify: bool
    force: bool


def _write(report: Report, folder: Path, errors: Sequence[QuantFlowError]) -> None:
    try:
        write_report(report, folder)
    except StoreError as error:
        if not errors:
            raise
        # What ended a stage, such as the same full disk, is the news.
        first = errors[0]
        hint = f"{first.hint} No report of it could be written to {folder}.".strip()
        raise type(first)(first.message, where=first.where, hint=hint) from error


def _finish(record: OpenRecord, report: Report, folder: Path) -> None:
    try:
        record.finish(report.verdict, report.exit_code, report.reason, folder)
    except StoreError as error:
        hint = f"The report is complete, with the verdict {report.verdict}: {folder}. {error.hint}"
        raise StoreError(error.message, where=error.where, hint=hint) from error


def _outcomes(
    recipe: Recipe, around: _Circumstances, record: OpenRecord
) -> tuple[tuple[StageOutcome, ...], str]:
    """Every stage's outcome and, where asked for, what verifying found."""
    digests = DigestCache(around.workspace / "digests.json", trust=not around.verify)
    store = Store(around.workspace / "store")
    with around.terminal:
        stages = build_graph(recipe, around.machine, digests)
        digests.save()
        keys = stage_keys(stages, around.machine)
        record.uses([key.key for key in keys.values()])
        _sweep(around)
        try:
            needs = find_needs(recipe, stages, keys, store)
        except RecipeError as error:
            raise placed(error, recipe) from error
        _check_fit(find_fit(needs, around.workspace.parent), around)
        outcomes = run_stages(
            stages,
            around.machine,
            store,
            around.terminal,
            deadline=around.deadline,
            unchanged=partial(check_unchanged, stages, digests),
            verify=around.verify,
        )
        verified = _verified(stages, outcomes, digests) if around.verify else ""
    for outcome in outcomes:
        if isinstance(outcome.error, RecipeError):
            raise placed(outcome.error, recipe)
    return outcomes, verified


def _sweep(around: _Circumstances) -> None:
    try:
        swept = sweep(around.workspace)
    except StoreError as error:
        around.terminal.say(f"What dead runs left cannot be removed: {error.message}.")
        return
    if swept:
        freed = readable(sum(item.freed_bytes for item in swept))
        around.terminal.say(f"Removed what {len(swept)} stages left unfinished over two weeks ago: {freed}.")


def _verified(stages: Sequence[Stage], outcomes: Sequence[StageOutcome], digests: DigestCache) -> str:
    """Hold the content of files from outside to what it was at the start; say what has been read again.

    Raises:
        StoreError: The content of one has changed, its size and times have not.
    """
    digests.distrust()
    try:
        check_unchanged(stages, digests)
    except StoreError:
        for outcome in outcomes:
            if outcome.stored is not None and not outcome.reused:
                shutil.rmtree(outcome.stored.folder, ignore_errors=True)
        raise
    stored = [file for o in outcomes if o.stored and o.reused for file in o.stored.manifest.files.values()]
    damaged = [o.stage.name for o in outcomes if any(e.code == DAMAGED for e in o.events)]
    return (
        f"Verified: {len(stored)} stored files ({readable(sum(file.size for file in stored))}) and "
        f"{len(digests.read)} of model and data ({readable(sum(digests.read.values()))}) read again; "
        f"damaged and computed anew: {', '.join(damaged) or 'none'}."
    )


def check_unchanged(stages: Sequence[Stage], digests: DigestCache) -> None:
    """Compare the files that stages read from outside the workspace with what their keys were computed from.

    By device, inode, size and times, as `digests` does; a file that differs in these is read.

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


def placed(error: RecipeError, recipe: Recipe) -> RecipeError:
    """A mistake of the recipe with the line that it is made in."""
    return RecipeError(error.message, where=recipe.place(error.where), hint=error.hint)


def _check_fit(fit: Fit, around: _Circumstances) -> None:
    try:
        require_fit(fit)
    except FitError as error:
        if not around.force:
            raise
        around.terminal.say(f"Running all the same, as --force says: {error.message}.")
    for room in fit.rooms:
        if room.tight:
            around.terminal.say(f"It will be tight: {room}.")


def _publish_artifacts(
    recipe: Recipe, outcomes: Sequence[StageOutcome], folder: Path, *, verify: bool
) -> tuple[Event, ...]:
    assembled = {o.stage.artifact: o.stored for o in outcomes if o.stage.kind == "assemble"}
    noticed = []
    for artifact in recipe.artifacts:
        if isinstance(artifact, ImportArtifact):
            continue
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
            hint=f"It is complete in the store. {remedy(error)}".strip(),
        ) from error
