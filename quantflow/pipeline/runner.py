"""Runs the stage graph: what is in the store is taken from there, the rest is computed, nothing is lost."""

import errno
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from quantflow.errors import QuantFlowError, StoreError
from quantflow.pipeline.code import code_identity
from quantflow.pipeline.events import Event
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.stage import Stage
from quantflow.pipeline.store import Store, StoredObject
from quantflow.pipeline.terminal import Terminal

KEY_VERSION = 1
# What a disk, a share or a permission can do to a run; any other OSError is a mistake of ours.
STORAGE_ERRORS = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
        errno.ESTALE,
        errno.ENOTCONN,
    )
)


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


@dataclass
class _StageReporter:
    """Collects a running stage's events and passes everything on to the terminal."""

    stage: str
    terminal: Terminal
    events: list[Event] = field(default_factory=list)

    def event(self, code: str, message: str, **detail: JsonValue) -> None:
        event = Event(code=code, stage=self.stage, message=message, detail=detail)
        self.events.append(event)
        self.terminal.event(event)

    def track(self, what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        return self.terminal.track(what, total)


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


def run_stages(
    stages: Sequence[Stage], machine: Machine, store: Store, terminal: Terminal, *, verify: bool = False
) -> tuple[StageOutcome, ...]:
    """Bring every stage's output about, in order.

    A stage of one artifact that fails takes only that artifact's later stages with it; a shared stage that
    fails ends the run. Outputs that are there already, finished, stay.

    Args:
        stages: In an order in which inputs come first.
        machine: Where it runs.
        store: Where outputs are looked up and put.
        terminal: Where progress is shown.
        verify: Read every stored file again instead of trusting its size and time.

    Returns:
        One outcome for each stage, in the same order.
    """
    outcomes: dict[str, StageOutcome] = {}
    keys: dict[str, str] = {}
    stopped = False
    for number, stage in enumerate(stages, start=1):
        made = made_from(stage, machine, {role: keys[name] for role, name in stage.inputs.items()})
        keys[stage.name] = key = key_of(made)
        inputs = {role: outcomes[name].stored for role, name in stage.inputs.items()}
        folders = {role: stored.folder for role, stored in inputs.items() if stored is not None}
        if stopped or len(folders) < len(inputs):
            outcomes[stage.name] = StageOutcome(stage, key)
            continue
        outcome = _bring_about(stage, key, made, folders, store, terminal, (number, len(stages)), verify)
        outcomes[stage.name] = outcome
        stopped = outcome.error is not None and not stage.artifact
    return tuple(outcomes.values())


def _bring_about(
    stage: Stage,
    key: str,
    made: dict[str, JsonValue],
    inputs: Mapping[str, Path],
    store: Store,
    terminal: Terminal,
    place: tuple[int, int],
    verify: bool,
) -> StageOutcome:
    with store.lock(key):
        stored = store.find(stage.kind, key, verify=verify)
        if stored is not None:
            for event in stored.manifest.events:
                terminal.event(event)
            terminal.stage_finished(*place, stage.name, stored.manifest.seconds, reused=True)
            return StageOutcome(stage, key, stored, True, stored.manifest.events)
        terminal.stage_started(*place, stage.name)
        noticed: tuple[Event, ...] = ()
        if store.exists(stage.kind, key):
            damaged = Event(
                code="stored-output-damaged",
                stage=stage.name,
                message=f"The stored output of {stage.name} is not what was written; it is computed again.",
                detail={"key": key},
            )
            terminal.event(damaged)
            noticed = (damaged,)
        reporter = _StageReporter(stage.name, terminal)
        started = time.monotonic()
        try:
            stage.load()(stage.params, inputs, store.begin(key), reporter)
            stored = store.commit(stage.kind, key, made, tuple(reporter.events), started)
        except QuantFlowError as error:
            store.discard(key)
            return StageOutcome(stage, key, None, False, (*noticed, *reporter.events), error)
        except OSError as error:
            if error.errno not in STORAGE_ERRORS:
                raise
            store.discard(key)
            return StageOutcome(
                stage, key, None, False, (*noticed, *reporter.events), _storage_error(error, stage.name)
            )
        terminal.stage_finished(*place, stage.name, stored.manifest.seconds, reused=False)
        return StageOutcome(stage, key, stored, False, (*noticed, *reporter.events))


def _storage_error(error: OSError, stage: str) -> StoreError:
    place = str(error.filename) if error.filename else f"stage {stage}"
    return StoreError(
        f"{error.strerror or error}",
        where=place,
        hint="finished stages are kept: mend the disk or the permissions and run the same command again",
    )
