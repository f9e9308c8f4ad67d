"""The content-addressed store: an output is there under its key, complete, or not at all."""

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from quantflow.errors import StoreError
from quantflow.pipeline.digest import file_digest
from quantflow.pipeline.events import Event
from quantflow.pipeline.lock import held, held_if_free
from quantflow.pipeline.storage import explained_storage, remedy
from quantflow.pipeline.usage import Usage

WORKSPACE = ".quantflow"
"""Folder in the working directory that holds the store, the history and what is remembered."""
MANIFEST = "manifest.json"
PARTIAL, LOCKS = "partial", "locks"
NO_STAGES = (PARTIAL, LOCKS)
"""Folders beside those of the stages' kinds."""


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
        usage: What it took of the machine; None in objects of versions that did not record it.
    """

    model_config = ConfigDict(frozen=True)

    stage: str
    key: str
    made_from: dict[str, JsonValue]
    files: dict[str, FileRecord]
    events: tuple[Event, ...]
    seconds: float
    usage: Usage | None = None


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

    Attributes:
        root: The same.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

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

    def objects(self) -> Iterator[tuple[Path, Manifest | None]]:
        """Folder and manifest of every object; no manifest where it cannot be read. Files are not checked."""
        for folder in sorted(self.root.glob("*/*")):
            if folder.is_dir() and folder.parent.name not in NO_STAGES:
                try:
                    yield folder, Manifest.model_validate_json((folder / MANIFEST).read_bytes())
                except (OSError, ValidationError):
                    yield folder, None

    def unfinished(self) -> Iterator[Path]:
        """Folders of outputs that were begun and are not finished; the name of each is its key."""
        yield from sorted(path for path in (self.root / PARTIAL).glob("*") if path.is_dir())

    def lock(self, key: str, on_wait: Callable[[str], None]) -> AbstractContextManager[None]:
        """Hold the right to compute `key`; another run that wants the same waits.

        Args:
            key: An object's address.
            on_wait: Told once, if another run holds it, in words which one and since when.

        Raises:
            StoreError: The store cannot be written.
        """
        return held(self.root / LOCKS / key, on_wait)

    def lock_if_free(self, key: str) -> AbstractContextManager[bool]:
        """The same without waiting: yields False where another process holds it."""
        return held_if_free(self.root / LOCKS / key)

    def used(self, stored: StoredObject) -> None:
        """Note that an object was of use now; `quantflow clean` removes the least recently used first."""
        # A store that may only be read is never cleaned from here either.
        with suppress(OSError):
            os.utime(stored.folder / MANIFEST)

    def has_progress(self, key: str) -> bool:
        """Whether an interrupted run left anything that lets the stage of `key` go on."""
        progress = Unfinished(self.root / PARTIAL / key).progress
        return progress.is_dir() and any(progress.iterdir())

    def begin(self, key: str, *, resume: bool) -> Unfinished:
        """Where the output of `key` is made.

        Args:
            key: An object's address.
            resume: Whether to keep what an interrupted run left there.
        """
        unfinished = Unfinished(self.root / PARTIAL / key)
        if not resume:
            self.discard(key)
        for folder in (unfinished.output, unfinished.progress):
            folder.mkdir(parents=True, exist_ok=True)
        return unfinished

    def discard(self, key: str) -> None:
        """Drop the unfinished output of `key`."""
        shutil.rmtree(self.root / PARTIAL / key, ignore_errors=True)

    def commit(
        self,
        stage: str,
        key: str,
        made_from: dict[str, JsonValue],
        events: tuple[Event, ...],
        started: float,
        usage: Callable[[], Usage] | None = None,
    ) -> StoredObject:
        """Make the folder of `begin` the object `key`: flushed, recorded, read-only, renamed into place.

        Args:
            stage: Kind of stage.
            key: The object's address.
            made_from: What the key was computed from.
            events: What the stage reported.
            started: `time.monotonic()` when the stage began.
            usage: Says what the stage has taken of the machine; asked when all is written.
        """
        partial = Unfinished(self.root / PARTIAL / key).output
        files: dict[str, FileRecord] = {}
        for path in sorted(p for p in partial.rglob("*") if p.is_file()):
            with path.open("rb") as file:
                os.fsync(file.fileno())
            stat = path.stat()
            if (
                stat.st_nlink == 1
            ):  # a file with other names is someone else's as well, such as the hub's cache
                path.chmod(0o444)
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
            usage=usage() if usage is not None else None,
        )
        record = partial / MANIFEST
        record.write_text(manifest.model_dump_json(indent=1))
        with record.open("rb") as file:
            os.fsync(file.fileno())
        folder = self._folder(stage, key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists():
            with explained_storage(folder):
                shutil.rmtree(folder)
        partial.rename(folder)
        flush_folder(folder.parent)
        self.discard(key)
        return StoredObject(folder, manifest)

    def _folder(self, stage: str, key: str) -> Path:
        return self.root / stage / key


def prepare_workspace(workspace: Path) -> Path:
    """Make the workspace, and keep it out of the user's version control.

    Raises:
        StoreError: It cannot be written.
    """
    kept_out = workspace / ".gitignore"
    try:
        workspace.mkdir(parents=True, exist_ok=True)
        if not kept_out.is_file() or kept_out.read_text() != "*\n":
            kept_out.write_text("*\n")
    except OSError as error:
        raise StoreError(
            f"the workspace cannot be written: {error.strerror}",
            where=str(workspace),
            hint=remedy(error) or "Run in a folder that you may write to.",
        ) from error
    return workspace


def flush_folder(folder: Path) -> None:
    """Make a rename within `folder` survive a power cut, where the file system knows how."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
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
        raise StoreError(f"cannot read it: {error.strerror}", where=str(path), hint=remedy(error)) from error
