"""The content-addressed store: an output is there under its key, complete, or not at all."""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from quantflow.errors import StoreError
from quantflow.pipeline.digest import file_digest
from quantflow.pipeline.events import Event

MANIFEST = "manifest.json"


class FileRecord(BaseModel):
    """A file of an object: what it weighs, when it was written, and what is in it."""

    model_config = ConfigDict(frozen=True)

    size: int
    mtime_ns: int
    sha256: str


class Manifest(BaseModel):
    """What an object is, how it came to be, and what it consists of.

    Attributes:
        stage: Kind of stage that wrote it.
        key: SHA-256 of `made_from`; the object's address.
        made_from: Inputs' keys, parameters, code, library versions, device.
        files: Path within the object → record.
        events: What the stage reported while writing it.
        seconds: Wall time it took.
    """

    model_config = ConfigDict(frozen=True)

    stage: str
    key: str
    made_from: dict[str, JsonValue]
    files: dict[str, FileRecord]
    events: tuple[Event, ...]
    seconds: float


@dataclass(frozen=True)
class StoredObject:
    """A finished output in the store."""

    folder: Path
    manifest: Manifest


@dataclass(frozen=True)
class Unfinished:
    """What there is of an object before it is finished.

    Attributes:
        folder: All of it.
    """

    folder: Path

    @property
    def output(self) -> Path:
        """What becomes the object."""
        return self.folder / "output"

    @property
    def progress(self) -> Path:
        """What lets an interrupted stage go on."""
        return self.folder / "progress"

    @property
    def events(self) -> Path:
        """The events so far, one JSON object a line."""
        return self.folder / "events.jsonl"


class Store:
    """Objects under `root`, one folder each.

    Args:
        root: `.quantflow/store` of the workspace.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def find(self, stage: str, key: str, *, verify: bool = False) -> StoredObject | None:
        """The object under `key`, or None where there is none or it is damaged.

        A file whose size or time differs from the record is hashed; with `verify` every file is.
        """
        folder = self._folder(stage, key)
        try:
            manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
        except (OSError, ValidationError):
            return None
        for name, record in manifest.files.items():
            if not _intact(folder / name, record, verify=verify):
                return None
        return StoredObject(folder, manifest)

    def exists(self, stage: str, key: str) -> bool:
        """Whether something lies under `key`, intact or not."""
        return self._folder(stage, key).exists()

    @contextmanager
    def lock(self, key: str, on_wait: Callable[[], None]) -> Iterator[None]:
        """Hold the right to compute `key`; another run that wants the same waits.

        Args:
            key: An object's address.
            on_wait: Called once if another run holds it.
        """
        folder = self._root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / key).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def begin(self, key: str, *, resume: bool) -> Unfinished:
        """Where the output of `key` is made.

        Args:
            key: An object's address.
            resume: Whether to keep what an interrupted run left there.
        """
        unfinished = Unfinished(self._root / "partial" / key)
        if not resume:
            self.discard(key)
        for folder in (unfinished.output, unfinished.progress):
            folder.mkdir(parents=True, exist_ok=True)
        return unfinished

    def discard(self, key: str) -> None:
        """Drop the unfinished output of `key`."""
        shutil.rmtree(self._root / "partial" / key, ignore_errors=True)

    def commit(
        self,
        stage: str,
        key: str,
        made_from: dict[str, JsonValue],
        events: tuple[Event, ...],
        started: float,
    ) -> StoredObject:
        """Make the folder of `begin` the object `key`: flushed, recorded, read-only, renamed into place.

        Args:
            stage: Kind of stage.
            key: The object's address.
            made_from: What the key was computed from.
            events: What the stage reported.
            started: `time.monotonic()` when the stage began.
        """
        partial = Unfinished(self._root / "partial" / key).output
        files: dict[str, FileRecord] = {}
        for path in sorted(p for p in partial.rglob("*") if p.is_file()):
            with path.open("rb") as file:
                os.fsync(file.fileno())
            path.chmod(0o444)
            stat = path.stat()
            files[path.relative_to(partial).as_posix()] = FileRecord(
                size=stat.st_size, mtime_ns=stat.st_mtime_ns, sha256=file_digest(path)
            )
        manifest = Manifest(
            stage=stage,
            key=key,
            made_from=made_from,
            files=files,
            events=events,
            seconds=round(time.monotonic() - started, 3),
        )
        record = partial / MANIFEST
        record.write_text(manifest.model_dump_json(indent=1))
        with record.open("rb") as file:
            os.fsync(file.fileno())
        folder = self._folder(stage, key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
        flush_folder(folder.parent)
        self.discard(key)
        return StoredObject(folder, manifest)

    def _folder(self, stage: str, key: str) -> Path:
        return self._root / stage / key


def flush_folder(folder: Path) -> None:
    """Make a rename within `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _intact(path: Path, record: FileRecord, *, verify: bool) -> bool:
    try:
        stat = path.stat()
        if stat.st_size != record.size:
            return False
        if not verify and stat.st_mtime_ns == record.mtime_ns:
            return True
        return file_digest(path) == record.sha256
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(f"cannot read it: {error.strerror}", where=str(path)) from error
