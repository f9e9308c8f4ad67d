"""The runs of a workspace: one small file each, there from a run's first moment and true after its last."""

import fcntl
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from quantflow.errors import StoreError
from quantflow.gate.verdict import Verdict
from quantflow.pipeline.deadline import DeadlineError
from quantflow.pipeline.devices import Computing
from quantflow.pipeline.storage import remedy

RUNS = "runs"
SCHEMA_VERSION = 1
RunStatus = Literal["running", "finished", "failed", "interrupted", "died"]


class RunRecord(BaseModel):
    """One run.

    Attributes:
        schema_version: Of this file.
        run_id: Name of the run and of its report's folder.
        recipe: The recipe's name.
        recipe_path: The recipe's file, absolute.
        status: `running`; `finished` when it has a report, whatever the verdict; `failed` when an error ended
            it before; `interrupted` from outside or by its time limit; `died` when its process is gone and
            said nothing (never stored: found out by whoever looks).
        verdict: Verdict of the report.
        exit_code: As the report has it, or as the error asks for.
        reason: Why the verdict, or what the error was.
        started: ISO 8601, UTC.
        finished: ISO 8601, UTC; None while it runs.
        seconds: Wall time; None while it runs.
        report: Folder of the report, relative to the folder that the workspace lies in.
        device: Where it computes; None in records of older versions.
        calibration_dtype: What it calibrates in; likewise.
        pid: Its process.
        host: The machine that the process runs on.
        keys: Store keys of its stages, which nobody may remove while it runs.
    """

    model_config = ConfigDict(frozen=True)

    schema_version: int = SCHEMA_VERSION
    run_id: str
    recipe: str
    recipe_path: str
    status: RunStatus
    verdict: Verdict | None = None
    exit_code: int | None = None
    reason: str = ""
    started: str
    finished: str | None = None
    seconds: float | None = None
    report: str | None = None
    device: str | None = None
    calibration_dtype: str | None = None
    pid: int
    host: str
    keys: tuple[str, ...] = ()


@dataclass
class OpenRecord:
    """The record of the run that is under way; its holder tells it what happens."""

    _history: "RunHistory"
    _record: RunRecord
    _began: datetime = field(default_factory=lambda: datetime.now(UTC))

    def uses(self, keys: Sequence[str]) -> None:
        """Name the stored objects that the run will read or write; a cleaning under way is waited for.

        Raises:
            StoreError: The workspace cannot be written.
        """
        with self._history.cleaning_kept_off():
            self._write(keys=tuple(keys))

    def finish(self, verdict: Verdict, exit_code: int, reason: str, report: Path) -> None:
        """Say that the run has a report.

        Args:
            verdict: As in the report.
            exit_code: As in the report.
            reason: As in the report.
            report: Its folder, absolute.

        Raises:
            StoreError: The workspace cannot be written.
        """
        place = os.path.relpath(report, self._history.workspace.parent)
        self._end("finished", verdict=verdict, exit_code=exit_code, reason=reason, report=place)

    def break_off(self, error: BaseException) -> None:
        """Say what ended the run before it had a report; a workspace that cannot be written is let be."""
        with suppress(StoreError):
            if isinstance(error, KeyboardInterrupt | DeadlineError):
                self._end("interrupted", exit_code=2, reason=str(error) or "interrupted")
            else:
                code = getattr(error, "exit_code", 2)
                message = str(error) if hasattr(error, "exit_code") else f"{type(error).__name__}: {error}"
                self._end("failed", exit_code=code, reason=message)

    @property
    def ended(self) -> bool:
        """Whether the run's end is recorded."""
        return self._record.finished is not None

    def _end(self, status: RunStatus, **more: object) -> None:
        now = datetime.now(UTC)
        self._write(
            status=status,
            finished=now.isoformat(timespec="milliseconds"),
            seconds=round((now - self._began).total_seconds(), 3),
            **more,
        )

    def _write(self, **changes: object) -> None:
        self._record = self._record.model_copy(update=changes)
        self._history.write(self._record)


class RunHistory:
    """Records in `runs/` of a workspace.

    Args:
        workspace: The workspace, `.quantflow`.
    """

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self._folder = workspace / RUNS

    @contextmanager
    def recorded(
        self, run_id: str, recipe: str, recipe_path: Path, computing: Computing | None = None
    ) -> Iterator[OpenRecord]:
        """Record a run from now until the end of the context, whatever that end is.

        While it lasts the run holds a lock, by which others see that it lives.

        Raises:
            StoreError: The workspace cannot be written.
        """
        record = RunRecord(
            run_id=run_id,
            recipe=recipe,
            recipe_path=str(recipe_path),
            status="running",
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            device=computing.device if computing else None,
            calibration_dtype=computing.calibration_dtype if computing else None,
            pid=os.getpid(),
            host=socket.gethostname(),
        )
        with ExitStack() as stack:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context(self._lock_file(run_id).open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError as error:
                raise _unwritable(error, self._folder) from error
            stack.callback(self._lock_file(run_id).unlink, missing_ok=True)
            opened = OpenRecord(self, record)
            self.write(record)
            try:
                yield opened
            except BaseException as error:
                if not opened.ended:
                    opened.break_off(error)
                raise

    def all(self) -> tuple[RunRecord, ...]:
        """Every run, the oldest first; one whose process is gone is shown as `died`."""
        found = [_read(path) for path in self._folder.glob("*.json")]
        records = [self._as_it_is(record) for record in found if record is not None]
        return tuple(sorted(records, key=lambda record: (record.started, record.run_id)))

    @contextmanager
    def cleaning_kept_off(self) -> Iterator[None]:
        """Keep others from removing objects; several runs may at once."""
        with self._gate(fcntl.LOCK_SH):
            yield

    @contextmanager
    def cleaning(self) -> Iterator[frozenset[str]]:
        """Keep runs from naming objects; yields the keys of those that living runs have named."""
        with self._gate(fcntl.LOCK_EX):
            running = [record for record in self.all() if record.status == "running"]
            yield frozenset(key for record in running for key in record.keys)

    def write(self, record: RunRecord) -> None:
        """Put a record in place, complete or not at all.

        Raises:
            StoreError: The workspace cannot be written.
        """
        path = self._folder / f"{record.run_id}.json"
        temporary = path.with_suffix(f".{os.getpid()}")
        try:
            temporary.write_text(record.model_dump_json(indent=1) + "\n", encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise _unwritable(error, self._folder) from error

    @contextmanager
    def _gate(self, kind: int) -> Iterator[None]:
        try:
            file = (self.workspace / "clean.lock").open("w")
        except OSError as error:
            raise _unwritable(error, self.workspace) from error
        with file:
            fcntl.flock(file, kind)
            yield

    def _as_it_is(self, record: RunRecord) -> RunRecord:
        if record.status != "running" or self._lives(record.run_id):
            return record
        # It may have ended between the look at its record and the look at its lock.
        now = _read(self._folder / f"{record.run_id}.json") or record
        return now if now.status != "running" else now.model_copy(update={"status": "died"})

    def _lives(self, run_id: str) -> bool:
        try:
            with self._lock_file(run_id).open("r") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _lock_file(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.lock"


def _read(path: Path) -> RunRecord | None:
    try:
        return RunRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _unwritable(error: OSError, folder: Path) -> StoreError:
    return StoreError(
        f"the record of the run cannot be written: {error.strerror}",
        where=str(folder),
        hint=remedy(error) or "Run in a folder that you may write to.",
    )
