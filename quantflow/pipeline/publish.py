"""Puts a finished artifact where people open it: the same bytes as in the store, complete or not at all."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from quantflow.pipeline.digest import file_digest
from quantflow.pipeline.store import flush_folder

# onnx refuses tensors in a file with several hard links, which it takes for an attack.
NEVER_LINKED = ".onnx.data"


def publish(stored: Path, target: Path, *, verify: bool = False) -> None:
    """Make `target` a folder with the files of `stored`.

    Files are hard links where file system and readers allow it, so that an artifact costs its size once, and
    copies elsewhere. A target that already holds these files is left alone; another one is replaced by
    renames.

    Args:
        stored: Folder in the store.
        target: Folder to make or replace.
        verify: Read files that are copies instead of trusting their size and time.

    Raises:
        OSError: The disk is full or the folder cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target.parent):
        for leftover in (_fresh(target), _former(target)):  # of a run killed while it was here
            _remove(leftover)
        if not _same_files(stored, target, verify=verify):
            _replace(stored, target)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other runs from publishing into `folder` at the same time."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _fresh(target: Path) -> Path:
    return target.with_name(f".{target.name}.new")


def _former(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")


def _replace(stored: Path, target: Path) -> None:
    fresh, former = _fresh(target), _former(target)
    try:
        for source in sorted(p for p in stored.rglob("*") if p.is_file()):
            place = fresh / source.relative_to(stored)
            place.parent.mkdir(parents=True, exist_ok=True)
            _link_or_copy(source, place)
        if target.exists() or target.is_symlink():
            target.rename(former)
        try:
            fresh.rename(target)
        except BaseException:
            if former.exists() or former.is_symlink():
                former.rename(target)
            raise
        flush_folder(target.parent)
    finally:
        _remove(fresh)
        _remove(former)


def _remove(path: Path) -> None:
    """Remove a folder, or the file or link that someone put in its place; what a link leads to stays."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _link_or_copy(source: Path, place: Path) -> None:
    if not source.name.endswith(NEVER_LINKED):
        with suppress(OSError):  # the file system may have no links
            os.link(source, place)
            return
    shutil.copy2(source, place)
    with place.open("rb") as file:
        os.fsync(file.fileno())


def _same_files(stored: Path, target: Path, *, verify: bool) -> bool:
    """Whether both folders hold the same names, each the same file or a copy."""
    ours = {p.relative_to(stored) for p in stored.rglob("*") if p.is_file()}
    theirs = {p.relative_to(target) for p in target.rglob("*") if p.is_file()}
    return ours == theirs and all(_same_file(stored / n, target / n, verify=verify) for n in ours)


def _same_file(ours: Path, theirs: Path, *, verify: bool) -> bool:
    if ours.samefile(theirs):
        return not theirs.is_symlink()
    if verify:
        return file_digest(ours) == file_digest(theirs)
    a, b = ours.stat(), theirs.stat()
    return (a.st_size, a.st_mtime_ns) == (b.st_size, b.st_mtime_ns)
