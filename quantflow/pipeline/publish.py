"""Puts a finished artifact where people open it: the same bytes as in the store, complete or not at all."""

import os
import shutil
from pathlib import Path

from quantflow.pipeline.store import flush_folder


def publish(stored: Path, target: Path) -> None:
    """Make `target` a folder with the files of `stored`.

    Files are hard links where the file system allows it, so that an artifact costs its size once, and copies
    elsewhere. A target that already holds these files is left alone; another one is replaced by renames.

    Args:
        stored: Folder in the store.
        target: Folder to make or replace.

    Raises:
        OSError: The disk is full or the folder cannot be written.
    """
    if _same_files(stored, target):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.{os.getpid()}.new")
    former = target.with_name(f".{target.name}.{os.getpid()}.old")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        for source in sorted(p for p in stored.rglob("*") if p.is_file()):
            place = fresh / source.relative_to(stored)
            place.parent.mkdir(parents=True, exist_ok=True)
            _link_or_copy(source, place)
        if target.exists():
            target.rename(former)
        fresh.rename(target)
        flush_folder(target.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(former, ignore_errors=True)


def _link_or_copy(source: Path, place: Path) -> None:
    try:
        os.link(source, place)
    except OSError:
        shutil.copy2(source, place)


def _same_files(stored: Path, target: Path) -> bool:
    """Whether both folders hold the same names, each the same file or a copy of equal size and time."""
    ours = {p.relative_to(stored): p.stat() for p in stored.rglob("*") if p.is_file()}
    theirs = {p.relative_to(target): p.stat() for p in target.rglob("*") if p.is_file()}
    return ours.keys() == theirs.keys() and all(
        (a.st_size, a.st_mtime_ns) == (b.st_size, b.st_mtime_ns)
        for a, b in ((ours[n], theirs[n]) for n in ours)
    )
