"""Runs the stage graph: what is in the store is taken from there, the rest is computed, nothing is lost."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from quantflow.errors import QuantFlowError
from quantflow.pipeline.code import code_identity
from quantflow.pipeline.deadline import Deadline, DeadlineError
from quantflow.pipeline.events import Event
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.stage import Stage, run_again
from quantflow.pipeline.stage_reporter import StageReporter
from quantflow.pipeline.storage import of_storage, storage_error, with_remedy
from quantflow.pipeline.store import Store, StoredObject
from quantflow.pipeline.terminal import Terminal
from quantflow.pipeline.usage import metered, release_memory

KEY_VERSION = 1
DAMAGED = "stored-output-damaged"
"""Code of the event that a stored output is not what was written."""


@dataclass(frozen=True)
class StageOutcome:
    """What became of one stage.

    Attributes:
        stage: The stage.
        key: Its address in the store.
        stored: Its output; None where it failed or was not reached.
        reused: Whether the output was there before this run.
        events: Its events: those stored with the output, and what the run itself noticed about it.
        error: Why there is no output; None where there is, or where an input failed before it.
    """

    stage: Stage
    key: str
    stored: StoredObject | None = None
    reused: bool = False
    events: tuple[Event, ...] = ()
    error: QuantFlowError | None = None


def made_from(stage: Stage, machine: Machine, input_keys: Mapping[str, str]) -> dict[str, JsonValue]:
    """Everything a stage's output depends on; its SHA-256 is the stage's key.

    Args:
        stage: The stage.
        machine: Where it runs.
        input_keys: Role → key of the stage that plays it.
    """
    code = code_identity(stage.function.partition(":")[0])
    contents = {path: f"{digest} {Path(path).name}" for path, digest in stage.external.items()}
    return {
        "version": KEY_VERSION,
        "function": stage.function,
        "params": _with_contents(stage.params.model_dump(mode="json"), contents),
        "inputs": dict(input_keys),
        "code": code.digest,
        "libraries": dict(code.libraries),
        "machine": machine.model_dump(mode="json") if stage.on_device else None,
        "external": sorted(contents.values()),
    }


def _with_contents(value: Any, contents: Mapping[str, str]) -> Any:
    """Parameters with paths of external files replaced by their content, so that moving one is no change."""
    if isinstance(value, dict):
        return {name: _with_contents(item, contents) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_contents(item, contents) for item in value]
    return contents.get(value, value) if isinstance(value, str) else value


def key_of(made: Mapping[str, JsonValue]) -> str:
    """SHA-256 of the canonical JSON of `made_from`, in hex."""
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class StageKey:
    """Where a stage's output is found, known before anything runs.

    Attributes:
        key: Its address in the store.
        made: What the key was computed from.
    """

    key: str
    made: dict[str, JsonValue]


def stage_keys(stages: Sequence[Stage], machine: Machine) -> dict[str, StageKey]:
    """The key of every stage by name; a key depends on its inputs' keys, not on their outputs.

    Args:
        stages: In an order in which inputs come first.
        machine: Where they run.
    """
    keys: dict[str, StageKey] = {}
    for stage in stages:
        made = made_from(stage, machine, {role: keys[name].key for role, name in stage.inputs.items()})
        keys[stage.name] = StageKey(key_of(made), made)
    return keys


def run_stages(
    stages: Sequence[Stage],
    machine: Machine,
    store: Store,
    terminal: Terminal,
    *,
    deadline: Deadline,
    unchanged: Callable[[], None],
    verify: bool = False,
) -> tuple[StageOutcome, ...]:
    """Bring every stage's output about, in order.

    A stage of one artifact that fails takes only that artifact's later stages with it; a shared stage that
    fails ends the run. Outputs that are there already, finished, stay.

    Args:
        stages: In an order in which inputs come first.
        machine: Where it runs.
        store: Where outputs are looked up and put.
        terminal: Where progress is shown.
        deadline: When to stop, resumable.
        unchanged: Raises where a file that a key was computed from has changed since; asked before an output
            is stored under that key.
        verify: Read every stored file again instead of trusting its size and time.

    Returns:
        One outcome for each stage, in the same order.
    """
    outcomes: dict[str, StageOutcome] = {}
    keys = stage_keys(stages, machine)
    again = run_again(stages)
    stopped = False
    for number, stage in enumerate(stages, start=1):
        key, made = keys[stage.name].key, keys[stage.name].made
        inputs = {role: outcomes[name].stored for role, name in stage.inputs.items()}
        folders = {role: stored.folder for role, stored in inputs.items() if stored is not None}
        if stopped or len(folders) < len(inputs):
            outcomes[stage.name] = StageOutcome(stage, key)
            continue
        deadline.check()
        bench = _Bench(store, terminal, deadline, machine.device, unchanged, verify)
        place = (number, len(stages))
        outcome = _bring_about(bench, stage, key, made, folders, place, again=stage.name in again)
        outcomes[stage.name] = outcome
        stopped = outcome.error is not None and not stage.artifact
    return tuple(outcomes.values())


@dataclass(frozen=True)
class _Bench:
    """What every stage is run with."""

    store: Store
    terminal: Terminal
    deadline: Deadline
    device: str
    unchanged: Callable[[], None]
    verify: bool


def _bring_about(
    bench: _Bench,
    stage: Stage,
    key: str,
    made: dict[str, JsonValue],
    inputs: Mapping[str, Path],
    place: tuple[int, int],
    *,
    again: bool,
) -> StageOutcome:
    store, terminal = bench.store, bench.terminal
    with store.lock(key, lambda holder: terminal.say(f"{stage.name}: waiting for {holder}")):
        stored = None if again else store.find(stage.kind, key, verify=bench.verify)
        if stored is not None:
            store.discard(key)  # a run killed just after it finished may have left its progress
            for event in stored.manifest.events:
                terminal.event(event, stored=True)
            store.used(stored)
            terminal.stage_finished(*place, stage.name, stored.manifest.seconds, reused=True)
            return StageOutcome(stage, key, stored, True, stored.manifest.events)
        terminal.stage_started(*place, stage.name)
        noticed: tuple[Event, ...] = ()
        if not again and store.exists(stage.kind, key):
            damaged = Event(
                code=DAMAGED,
                stage=stage.name,
                message=f"The stored output of {stage.name} is not what was written; it is computed again.",
                detail={"key": key},
            )
            terminal.event(damaged)
            noticed = (damaged,)
        resumes = stage.resumable and store.has_progress(key)
        unfinished = store.begin(key, resume=stage.resumable)
        reporter = StageReporter(stage.name, terminal, unfinished, bench.deadline)
        try:
            function = stage.load()  # importing torch, for one, is the process's time and not the stage's
            release_memory()
            started = time.monotonic()
            with metered(bench.device, resumed=resumes) as usage:
                function(stage.params, inputs, unfinished.output, reporter)
                bench.unchanged()
                stored = store.commit(stage.kind, key, made, tuple(reporter.events), started, usage)
        except (DeadlineError, KeyboardInterrupt):
            if not stage.resumable:
                store.discard(key)
            raise
        except Exception as error:
            of_disk = of_storage(error)
            # From a disk or a share that is away nothing wrong was read: what there is, is right.
            if not stage.resumable or (of_disk is None and isinstance(error, QuantFlowError)):
                store.discard(key)
            if isinstance(error, QuantFlowError):
                failure = with_remedy(error)
            elif of_disk is not None:
                failure = storage_error(of_disk, unfinished.folder)
            else:
                raise
            return StageOutcome(
                stage, key, None, False, (*noticed, *reporter.noticed, *reporter.events), failure
            )
        terminal.stage_finished(*place, stage.name, stored.manifest.seconds, reused=False)
        return StageOutcome(stage, key, stored, False, (*noticed, *reporter.noticed, *reporter.events))
