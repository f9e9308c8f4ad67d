"""A lock on a file that says who holds it; it is free again when its process ends, however it ends."""

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from quantflow.pipeline.storage import explained_storage

SIGNATURE_BYTES = 1000
"""More than any signature has."""


@contextmanager
def held(path: Path, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock; wait while another process does.

    Args:
        path: The lock's file, made if it is not there.
        on_wait: Told once, if another process holds it, in words which one and since when.

    Raises:
        StoreError: The file cannot be made.
    """
    with _opened(path) as file:
        if not _taken(file):
            on_wait(os.pread(file.fileno(), SIGNATURE_BYTES, 0).decode(errors="replace") or "another process")
            fcntl.flock(file, fcntl.LOCK_EX)
        _sign(file)
        yield


@contextmanager
def held_if_free(path: Path) -> Iterator[bool]:
    """The same without waiting: yields False where another process holds it."""
    with _opened(path) as file:
        yield _taken(file)


def _opened(path: Path) -> IO[bytes]:
    with explained_storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab+", buffering=0)


def _taken(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(file: IO[bytes]) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    signature = f"process {os.getpid()} on {socket.gethostname()}, which holds it since {now}"
    with suppress(OSError):  # a full disk keeps it from those who wait, and the lock holds all the same
        file.truncate(0)
        file.write(signature.encode())
