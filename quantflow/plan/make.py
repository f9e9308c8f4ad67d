"""The plan of a recipe: every stage, cached or not and why not, and what it takes, before anything runs."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from quantflow.errors import QuantFlowError, RecipeError, StoreError
from quantflow.pipeline.devices import Computing, decide
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.graph import build_graph
from quantflow.pipeline.machine import find_machine
from quantflow.pipeline.run import placed
from quantflow.pipeline.runner import stage_keys
from quantflow.pipeline.store import WORKSPACE, Store, prepare_workspace
from quantflow.pipeline.usage import machine_name
from quantflow.plan.costs import Facts
from quantflow.plan.fit import PROCESS_BYTES, Fit, find_fit
from quantflow.plan.learned import Lesson, learn, past_stages
from quantflow.plan.needs import Need, Needs, find_needs
from quantflow.plan.reasons import Reason
from quantflow.plan.speed import Speed, find_speed, machine_is_busy
from quantflow.recipe.schema import Recipe

MEASURING = "Measuring how fast this machine is; this is done once and remembered."


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class PlannedStage(_Frozen):
    """One stage.

    Attributes:
        name: As in the run.
        cached: Whether its output is in the store.
        reasons: Why it has to run; empty where it has not.
        seconds: Time it takes on this machine left alone; None where unknown.
        seconds_by: Whether that is `counted` work over the machine's measured speed, or corrected by what
            stored stages took (`learned`).
        learned_from: How many of those.
        memory: Most main memory of the process meanwhile, bytes; None where unknown.
        gpu_memory: Most GPU memory, bytes.
        disk: What it writes to the workspace, bytes; None where unknown.
        scratch: Disk that it takes besides while it runs, bytes.
        unknown: What is not known and why.
        resumes: Whether it goes on from where an interrupted run was, so that all figures are upper bounds.
    """

    name: str
    cached: bool
    reasons: tuple[Reason, ...] = ()
    seconds: float | None = None
    seconds_by: Literal["counted", "learned"] | None = None
    learned_from: int = 0
    memory: int | None = None
    gpu_memory: int = 0
    disk: int | None = None
    scratch: int = 0
    unknown: str = ""
    resumes: bool = False


class PlannedFacts(_Frozen):
    """What the estimates go by.

    Attributes:
        model_type: As in config.json; None where the model is not known, as for all that follows.
        parameters: Weights.
        dtype: What the checkpoint stores.
        weight_bytes: Its size.
        download_bytes: What has to be fetched first.
        model_unknown: What is not known of the model and why.
        text_known_by: `counted`, `sampled` or `assumed`; None where it is not known.
        calibration_tokens: Tokens of all calibration windows.
        evaluation_tokens: Tokens of all evaluation windows.
        text_unknown: What is not known of the text and why.
    """

    model_type: str | None = None
    parameters: int | None = None
    dtype: str | None = None
    weight_bytes: int | None = None
    download_bytes: int | None = None
    model_unknown: str = ""
    text_known_by: str | None = None
    calibration_tokens: int | None = None
    evaluation_tokens: int | None = None
    text_unknown: str = ""


class Plan(_Frozen):
    """A recipe's plan.

    Attributes:
        recipe: The recipe's name.
        device: `cpu` or `cuda`.
        machine: What computes.
        computing: What it computes in.
        facts: What the estimates go by.
        stages: In the order in which they run.
        start_seconds: Time to start the program and import what it computes with; 0 where all is cached.
        seconds: Time of all stages whose time is known, and of the start; None where speed was not measured.
        fit: Memory and disk against what there is.
        notes: What else a reader should know.
    """

    recipe: str
    device: Literal["cpu", "cuda"]
    machine: str
    computing: Computing
    facts: PlannedFacts
    stages: tuple[PlannedStage, ...]
    start_seconds: float
    seconds: float | None
    fit: Fit
    notes: tuple[str, ...]

    @property
    def to_run(self) -> tuple[PlannedStage, ...]:
        """Stages that are not in the store."""
        return tuple(stage for stage in self.stages if not stage.cached)


def make_plan(
    recipe: Recipe, *, folder: Path | None = None, say: Callable[[str], None] = lambda message: None
) -> Plan:
    """Plan a recipe without running anything of it; torch is not imported, weights are not fetched.

    Args:
        recipe: A loaded recipe.
        folder: Where `.quantflow/` lies; the working directory if None.
        say: Told what keeps the reader waiting.

    Raises:
        RecipeError: The recipe asks for what is not there or not possible for this model.
        QuantFlowError: A file that the recipe names, or the store, cannot be read.
    """
    folder = (folder or Path.cwd()).resolve()
    workspace = folder / WORKSPACE
    with suppress(StoreError):  # a folder that may only be read can be planned in
        prepare_workspace(workspace)
    store = Store(workspace / "store")
    try:
        machine = find_machine(recipe.runtime.device)
        digests = DigestCache(workspace / "digests.json")
        stages = build_graph(recipe, machine, digests)
        with suppress(OSError):
            digests.save()
        needs = find_needs(recipe, stages, stage_keys(stages, machine), store)
    except RecipeError as error:
        raise placed(error, recipe) from error
    speed, notes = None, []
    lessons: Mapping[str, Lesson] = {}
    if needs.to_run:
        try:
            speed = find_speed(workspace, machine.device, lambda: say(MEASURING))
            lessons = learn(list(past_stages(store)), speed)
            notes += _about(speed)
        except QuantFlowError as error:
            notes.append(f"Times are not known: {error.message}.")
    planned = tuple(_stage(need, speed, lessons) for need in needs.stages)
    start = speed.imports if speed is not None else 0.0
    return Plan(
        recipe=recipe.name,
        device=machine.device,
        machine=machine_name(machine.device),
        computing=decide(recipe.runtime.calibration_dtype, machine),
        facts=_facts(needs),
        stages=planned,
        start_seconds=start,
        seconds=_total(planned, start) if speed is not None or not needs.to_run else None,
        fit=find_fit(needs, folder),
        notes=tuple(notes),
    )


def _about(speed: Speed) -> list[str]:
    busy = "Other programs are using this machine's cores; times hold for a machine left alone."
    measured = "Its speed was measured while other programs used its cores, and is measured again next time."
    return [*([busy] if machine_is_busy() else []), *([measured] if speed.busy else [])]


def _stage(need: Need, speed: Speed | None, lessons: Mapping[str, Lesson]) -> PlannedStage:
    name, cost = need.stage.name, need.cost
    if need.cached is not None:
        return PlannedStage(name=name, cached=True, seconds=0.0, memory=0, disk=0)
    lesson = lessons.get(need.stage.function)
    seconds = speed.seconds(cost.work) if speed is not None and cost.work is not None else None
    if seconds is not None and lesson is not None:
        seconds *= lesson.ratio
    known = seconds is not None
    return PlannedStage(
        name=name,
        cached=False,
        reasons=need.reasons,
        seconds=seconds,
        seconds_by=None if not known else "learned" if lesson is not None else "counted",
        learned_from=lesson.stages if known and lesson is not None else 0,
        memory=None if cost.host_bytes is None else PROCESS_BYTES + cost.host_bytes,
        gpu_memory=cost.device_bytes,
        disk=cost.disk_bytes,
        scratch=cost.scratch_bytes,
        unknown=cost.unknown,
        resumes=need.resumes,
    )


def _total(stages: tuple[PlannedStage, ...], start: float) -> float:
    return start + sum(stage.seconds for stage in stages if stage.seconds is not None)


def _facts(needs: Needs) -> PlannedFacts:
    facts: Facts = needs.facts
    shape, text = facts.model.shape, facts.text
    return PlannedFacts(
        model_type=shape.model_type if shape else None,
        parameters=shape.parameters if shape else None,
        dtype=shape.dtype if shape else None,
        weight_bytes=facts.model.weight_bytes,
        download_bytes=facts.model.download_bytes,
        model_unknown=facts.model.unknown,
        text_known_by=text.known_by if text else None,
        calibration_tokens=text.calibration_tokens if text else None,
        evaluation_tokens=text.evaluation_tokens if text else None,
        text_unknown=facts.no_text,
    )
