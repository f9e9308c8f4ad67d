"""SHA-256 of files, remembered by inode, size and time so that nothing is rehashed for nothing."""

import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from quantflow.errors import StoreError
from quantflow.pipeline.storage import remedy

CHUNK_BYTES = 8 << 20
# A file changed within this time of being hashed could change again without its time stamp moving.
SETTLED_NS = 2_000_000_000


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


Mark = tuple[int, int, int, int, int]
"""Device, inode, size and times of a file: as long as they stay, its content is taken to stay."""


class DigestCache:
    """Content hashes of files outside the store.

    Args:
        path: JSON file to remember them in; a memory that cannot be read is none.
        trust: False to read every file once again whatever is remembered of former runs (`--verify`).

    Attributes:
        read: Files that were read by now, and the bytes in them.
    """

    def __init__(self, path: Path, *, trust: bool = True) -> None:
        self._path = path
        self._known = _remembered(path)
        self._trusted = dict(self._known) if trust else {}
        self.read: dict[Path, int] = {}

    def digest(self, path: Path) -> str:
        """SHA-256 of `path`, from memory where its device, inode, size and times are unchanged.

        Raises:
            StoreError: The file cannot be read.
        """
        try:
            stat = path.stat()
            mark = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            known = self._trusted.get(str(path))
            if known is not None and known[0] == mark:
                return known[1]
            digest = file_digest(path)
        except OSError as error:
            raise StoreError(
                f"cannot read it: {error.strerror}", where=str(path), hint=remedy(error)
            ) from error
        self.read[path] = stat.st_size
        if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > SETTLED_NS:
            self._known[str(path)] = self._trusted[str(path)] = (mark, digest)
        return digest

    def distrust(self) -> None:
        """Read every file once again from now on, as at the beginning of a run with `--verify`."""
        self._trusted = {}

    def save(self) -> None:
        """Write what is remembered, atomically; a disk that does not take it costs time later, no more."""
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        content = {name: [*mark, digest] for name, (mark, digest) in self._known.items()}
        with suppress(OSError):
            try:
                temporary.write_text(json.dumps(content, sort_keys=True))
                temporary.replace(self._path)
            finally:
                temporary.unlink(missing_ok=True)


def _remembered(path: Path) -> dict[str, tuple[Mark, str]]:
    try:
        content = json.loads(path.read_text())
        return {name: (_mark(values), str(values[-1])) for name, values in content.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _mark(values: Sequence[int | str]) -> Mark:
    device, inode, size, mtime, ctime = map(int, values[:-1])
    return device, inode, size, mtime, ctime
