"""Runs the stage graph: what is in the store is taken from there, the rest is computed, nothing is lost."""

import errno
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from quantflow.errors import QuantFlowError, StoreError
from quantflow.pipeline.code import code_identity
from quantflow.pipeline.deadline import Deadline, DeadlineError
from quantflow.pipeline.events import Event
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.stage import Stage, run_again
from quantflow.pipeline.store import Store, StoredObject, Unfinished
from quantflow.pipeline.terminal import Terminal
from quantflow.pipeline.usage import metered

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


class _StageReporter:
    """Keeps a running stage's events, those before an interruption too, and passes all on to the terminal."""

    def __init__(self, stage: str, terminal: Terminal, unfinished: Unfinished, deadline: Deadline) -> None:
        self._stage = stage
        self._terminal = terminal
        self._file = unfinished.events
        self._deadline = deadline
        self.progress_folder = unfinished.progress
        self.events: list[Event] = []
        if self._file.exists():
            for line in self._file.read_text(encoding="utf-8").splitlines():
                with suppress(ValidationError):  # the last line may have been cut
                    self.events.append(Event.model_validate_json(line))

    def event(self, code: str, message: str, **detail: JsonValue) -> None:
        event = Event(code=code, stage=self._stage, message=message, detail=detail)
        if event in self.events:  # told before the interruption, and again on the way to where it was
            return
        self.events.append(event)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(event.model_dump_json() + "\n")
        self._terminal.event(event)

    @contextmanager
    def track(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        with self._terminal.track(what, total) as advance:

            def advance_in_time(steps: int) -> None:
                advance(steps)
                self._deadline.check()

            yield advance_in_time


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
    with store.lock(key, lambda: terminal.say(f"{stage.name}: waiting for another run that computes it")):
        stored = None if again else store.find(stage.kind, key, verify=bench.verify)
        if stored is not None:
            store.discard(key)  # a run killed just after it finished may have left its progress
            for event in stored.manifest.events:
                terminal.event(event)
            store.used(stored)
            terminal.stage_finished(*place, stage.name, stored.manifest.seconds, reused=True)
            return StageOutcome(stage, key, stored, True, stored.manifest.events)
        terminal.stage_started(*place, stage.name)
        noticed: tuple[Event, ...] = ()
        if not again and store.exists(stage.kind, key):
            damaged = Event(
                code="stored-output-damaged",
                stage=stage.name,
                message=f"The stored output of {stage.name} is not what was written; it is computed again.",
                detail={"key": key},
            )
            terminal.event(damaged)
            noticed = (damaged,)
        resumes = stage.resumable and store.has_progress(key)
        unfinished = store.begin(key, resume=stage.resumable)
        reporter = _StageReporter(stage.name, terminal, unfinished, bench.deadline)
        try:
            function = stage.load()  # importing torch, for one, is the process's time and not the stage's
            started = time.monotonic()
            with metered(bench.device, resumed=resumes) as usage:
                function(stage.params, inputs, unfinished.output, reporter)
                bench.unchanged()
                stored = store.commit(stage.kind, key, made, tuple(reporter.events), started, usage)
        except DeadlineError:
            raise
        except QuantFlowError as error:
            store.discard(key)
            return StageOutcome(stage, key, None, False, (*noticed, *reporter.events), error)
        except OSError as error:
            if error.errno not in STORAGE_ERRORS:
                raise
            if not stage.resumable:
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
        hint="what is finished is kept: mend the disk or the permissions and run the same command again",
    )
