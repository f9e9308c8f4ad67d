"""The scan by itself: a recipe's stages up to the scores of its units, and no artifact."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from quantflow.errors import FitError, RecipeError
from quantflow.pipeline.deadline import Deadline
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.events import Event
from quantflow.pipeline.graph import build_graph
from quantflow.pipeline.machine import Machine, find_machine
from quantflow.pipeline.run import check_unchanged, placed
from quantflow.pipeline.runner import run_stages, stage_keys
from quantflow.pipeline.scan_stage import SCAN, SETTLE, scan_stages
from quantflow.pipeline.stage import Stage
from quantflow.pipeline.storage import explained_storage
from quantflow.pipeline.store import WORKSPACE, Store, prepare_workspace
from quantflow.pipeline.terminal import QuietTerminal, Terminal
from quantflow.plan.fit import find_fit, require_fit
from quantflow.plan.needs import find_needs
from quantflow.recipe.schema import Recipe
from quantflow.sensitivity.record import ScanRecord, load_scan


@dataclass(frozen=True)
class ScanResult:
    """What a scan came to.

    Attributes:
        records: The scores: one record for all artifacts of codes, and one for each whose values are its own.
        events: Of all stages.
    """

    records: tuple[ScanRecord, ...]
    events: tuple[Event, ...]


def scan_recipe(
    recipe: Recipe,
    *,
    folder: Path | None = None,
    terminal: Terminal | None = None,
    time_limit: float | None = None,
    force: bool = False,
) -> ScanResult:
    """Score the units of a recipe's model in the precisions of its artifacts; what is in the store is taken.

    Args:
        recipe: A loaded recipe.
        folder: Where `.quantflow/` lies; the working directory if None.
        terminal: Where progress is shown; nowhere if None.
        time_limit: Seconds after which it stops, resumable; None for none.
        force: Scan even where memory or disk are estimated not to be enough.

    Raises:
        DeadlineError: The time limit is reached.
        RecipeError: No artifact of the recipe is quantized, or it asks for what is not possible.
        FitError: Memory or disk are not enough, as far as can be told before.
        QuantFlowError: A stage failed.
    """
    folder = (folder or Path.cwd()).resolve()
    terminal = terminal or QuietTerminal()
    try:
        machine = find_machine(recipe.runtime.device)
        workspace = prepare_workspace(folder / WORKSPACE)
        digests, store = DigestCache(workspace / "digests.json"), Store(workspace / "store")
        with explained_storage(folder), terminal:
            graph = build_graph(recipe, machine, digests)
            digests.save()
            stages = _leading_to(_scans(recipe, machine, graph), graph)
            fit = find_fit(find_needs(recipe, stages, stage_keys(stages, machine), store), folder)
            try:
                require_fit(fit)
            except FitError as error:
                if not force:
                    raise
                terminal.say(f"Running all the same, as --force says: {error.message}.")
            outcomes = run_stages(
                stages,
                machine,
                store,
                terminal,
                deadline=Deadline(time_limit),
                unchanged=partial(check_unchanged, stages, digests),
            )
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
    except RecipeError as error:
        raise placed(error, recipe) from error
    # What settles the scores of a scan, if anything does, comes right after it.
    kind = SETTLE if any(outcome.stage.kind == SETTLE for outcome in outcomes) else SCAN
    stored = [outcome.stored for outcome in outcomes if outcome.stage.kind == kind]
    return ScanResult(
        records=tuple(load_scan(found.folder) for found in stored if found is not None),
        events=tuple(event for outcome in outcomes for event in outcome.events),
    )


def _scans(recipe: Recipe, machine: Machine, graph: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """The scans of a run of the recipe; of one that asks for none the one that it would have."""
    scans = tuple(stage for stage in graph if stage.kind in (SCAN, SETTLE))
    own = scan_stages(recipe, machine)
    if not scans and not own:
        raise RecipeError(
            "it quantizes nothing, so there is nothing to scan",
            where="artifacts",
            hint="Ask for an artifact of a quantized format, such as `format: awq`; ONNX artifacts in INT8 "
            "are scanned where the recipe has a section `sensitivity`.",
        )
    return scans or own


def _leading_to(scans: tuple[Stage, ...], graph: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """The stages that the scans need, those that refuse a model or its shapes first, and the scans, last."""
    needed = {"check", "inspect", *(name for scan in scans for name in scan.inputs.values())}
    for stage in reversed(graph):
        if stage.name in needed:
            needed |= set(stage.inputs.values())
    asked = {stage.name for stage in scans}
    return (*(stage for stage in graph if stage.name in needed - asked), *scans)
