"""SHA-256 of files, remembered by inode, size and time so that nothing is rehashed for nothing."""

import hashlib
import json
import os
import time
from pathlib import Path

from quantflow.errors import StoreError

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


class DigestCache:
    """Content hashes of files outside the store.

    Args:
        path: JSON file to remember them in.
        trust: False to read every file again whatever is remembered (`--verify`).
    """

    def __init__(self, path: Path, *, trust: bool = True) -> None:
        self._path = path
        self._trust = trust
        self._known: dict[str, list[int | str]] = {}
        if path.is_file():
            try:
                self._known = json.loads(path.read_text())
            except ValueError:
                self._known = {}

    def digest(self, path: Path) -> str:
        """SHA-256 of `path`, from memory where its device, inode, size and times are unchanged.

        Raises:
            StoreError: The file cannot be read.
        """
        try:
            stat = path.stat()
            mark = [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
            known = self._known.get(str(path))
            if self._trust and known and known[:-1] == mark:
                return str(known[-1])
            digest = file_digest(path)
        except OSError as error:
            raise StoreError(f"cannot read it: {error.strerror}", where=str(path)) from error
        if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > SETTLED_NS:
            self._known[str(path)] = [*mark, digest]
        return digest

    def save(self) -> None:
        """Write what is remembered, atomically."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(self._known, sort_keys=True))
        temporary.replace(self._path)
