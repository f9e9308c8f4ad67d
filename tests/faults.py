"""Disks that fill up, shares that go away, sudden death: for commands that `python -c` starts.

Every file that Python opens goes through here; what matches gets the error that a system would give. Files
written by link, rename or another language's code do not, which the names in the tests are chosen for.
"""

import builtins
import ctypes
import errno
import io
import os
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Bytes that still go into a file on a full disk: it is cut, not empty.
LAST_BYTES = 10


def fill_disk(pattern: str) -> None:
    """Let the disk be full for every file whose path matches."""
    _fail(lambda path, mode: _Full if _writes(mode) and re.search(pattern, path) else None)


def fill_disk_for_good(number: int) -> None:
    """Let the disk be full from the n-th file on that is opened for writing below the working directory."""
    seen = 0

    def choose(path: str, mode: str) -> type[io.FileIO] | None:
        nonlocal seen
        if not _writes(mode) or not Path(path).absolute().is_relative_to(Path.cwd()):
            return None
        seen += 1
        return _Full if seen >= number else None

    _fail(choose)


def lose_share(pattern: str, number: int, code: int) -> None:
    """Let the n-th opening and every later one of files whose path matches fail while they are read."""
    seen = 0

    class Lost(io.FileIO):
        def readinto(self, buffer: Any) -> int:
            raise OSError(code, os.strerror(code))

        def read(self, size: int | None = -1) -> bytes:
            raise OSError(code, os.strerror(code))

        def readall(self) -> bytes:
            raise OSError(code, os.strerror(code))

    def choose(path: str, mode: str) -> type[io.FileIO] | None:
        nonlocal seen
        if _writes(mode) or not re.search(pattern, path):
            return None
        seen += 1
        if seen < number:
            return None
        if code == errno.ENOENT:
            raise FileNotFoundError(code, os.strerror(code), path)
        return Lost

    _fail(choose)


def die_at_piece(number: int, counted_in: str) -> None:
    """Score in pieces of ten positions, a line in a file for each; end by SIGKILL within the n-th."""
    from quantflow.measure import divergence, scoring
    from quantflow.pipeline import pace

    part: Any = scoring
    part.LOGITS_BYTES = 400 * 4 * 10
    pace.MAX_OVERHEAD = float("inf")
    original, done = divergence.token_nll, 0

    def counted(log_p: Any, targets: Any) -> Any:
        nonlocal done
        done += 1
        if done == number:
            os.kill(os.getpid(), signal.SIGKILL)
        with Path(counted_in).open("a") as file:
            file.write("piece\n")
        return original(log_p, targets)

    part.token_nll = counted


def obey_permissions() -> None:
    """Take from root what other users never had, see capabilities(7): to read and write whatever the mode."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    for index in range(3):
        sets[index] &= ~0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    assert libc.capset(header, sets) == 0


class _Full(io.FileIO):
    """A file on a full disk."""

    def write(self, data: Any) -> int:
        if self.tell() < LAST_BYTES:
            return super().write(bytes(data)[:LAST_BYTES])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _writes(mode: str) -> bool:
    return any(letter in mode for letter in "wax+")


def _fail(choose: Callable[[str, str], type[io.FileIO] | None]) -> None:
    original: Any = io.open

    def opened(file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **options: Any) -> Any:
        kind = choose(os.fsdecode(file), mode) if isinstance(file, str | bytes | os.PathLike) else None
        if kind is None:
            return original(file, mode, buffering, *rest, **options)
        raw = kind(file, mode.replace("b", "").replace("t", ""))
        if buffering == 0:
            return raw
        buffered: Any = io.BufferedWriter(raw) if _writes(mode) else io.BufferedReader(raw)
        if "b" in mode:
            return buffered
        names = ("encoding", "errors", "newline")
        return io.TextIOWrapper(buffered, **_named(names, rest), **_chosen(names, options))

    io.open = builtins.open = opened


def _named(names: tuple[str, ...], values: tuple[Any, ...]) -> Mapping[str, Any]:
    return dict(zip(names, values, strict=False))


def _chosen(names: tuple[str, ...], options: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: options[name] for name in names if name in options}


def interrupt_at_open(pattern: str) -> None:
    """Send this process what Ctrl-C sends, when the command opens files whose path matches."""
    before = signal.getsignal(signal.SIGINT)

    def choose(path: str, mode: str) -> None:
        if re.search(pattern, path) and signal.getsignal(signal.SIGINT) != before:
            signal.raise_signal(signal.SIGINT)

    _fail(choose)
