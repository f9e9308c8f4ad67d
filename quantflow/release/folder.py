"""Publishes artifacts into a folder: versions side by side, `current` and `previous` lead to two of them."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from quantflow.errors import ArtifactError, StoreError
from quantflow.pipeline.lock import held
from quantflow.pipeline.storage import explained_storage
from quantflow.pipeline.store import flush_folder
from quantflow.release.artifact_check import PROVENANCE, artifact_digest

CURRENT, PREVIOUS = "current", "previous"
KEPT = "What was published before is as it was."


@dataclass(frozen=True)
class Published:
    """What became of publishing.

    Attributes:
        place: The version's folder.
        changed: Whether it is a new version; the bytes that are current are not published twice.
        previous: The version that was current before; None where there was none.
    """

    place: Path
    changed: bool
    previous: str | None


def publish_version(
    artifact: Path, shelf: Path, version: str, add: Callable[[Path], None], on_wait: Callable[[str], None]
) -> Published:
    """Copy an artifact to `shelf/version` and let `current` lead there, complete or not at all.

    The version that was current becomes `previous`; older ones are removed.

    Args:
        artifact: The artifact's folder.
        shelf: Folder of one artifact's versions.
        version: Name of the new one.
        add: Puts the report beside the files, given the new folder.
        on_wait: Told if another job is publishing there.

    Raises:
        StoreError: It cannot be written there.
    """
    with explained_storage(shelf, KEPT):
        shelf.mkdir(parents=True, exist_ok=True)
    with held(shelf / ".lock", on_wait), explained_storage(shelf, KEPT):
        before = _leads_to(shelf / CURRENT)
        if before is not None and artifact_digest(shelf / before) == artifact_digest(artifact):
            return Published(shelf / before, False, before)
        fresh = shelf / f".{version}.new"
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            shutil.copytree(artifact, fresh)
            add(fresh)
            _flush(fresh)
            shutil.rmtree(shelf / version, ignore_errors=True)  # of a rollback from it, or a killed job
            fresh.rename(shelf / version)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        if before is not None:
            _lead(shelf / PREVIOUS, before)
        _lead(shelf / CURRENT, version)
        flush_folder(shelf)
        _forget(shelf, {version, before})
    return Published(shelf / version, True, before)


def roll_back(shelf: Path, on_wait: Callable[[str], None]) -> tuple[str, str]:
    """Let `current` lead to the version before, and `previous` to the one left.

    Returns:
        The version left, and the one returned to.

    Raises:
        ArtifactError: There is no version before.
        StoreError: It cannot be written there.
    """
    if not shelf.is_dir():
        raise ArtifactError("nothing was published there", where=str(shelf))
    with held(shelf / ".lock", on_wait), explained_storage(shelf, KEPT):
        current, previous = _leads_to(shelf / CURRENT), _leads_to(shelf / PREVIOUS)
        if current is None or previous is None:
            raise ArtifactError(
                "there is no version to return to",
                where=str(shelf),
                hint="The first one was published there, or what it replaced was removed.",
            )
        _lead(shelf / CURRENT, previous)
        _lead(shelf / PREVIOUS, current)
        flush_folder(shelf)
    return current, previous


def _leads_to(link: Path) -> str | None:
    """Name of the version that a link leads to; None where it leads to none."""
    if not link.is_symlink():
        return None
    name = link.readlink().name
    return name if (link.parent / name).is_dir() else None


def _lead(link: Path, version: str) -> None:
    """Let a link lead to a version, by one rename."""
    fresh = link.with_name(f".{link.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(version, target_is_directory=True)
    try:
        fresh.replace(link)
    except IsADirectoryError as error:
        raise StoreError("a folder of that name is in the way", where=str(link)) from error


def _forget(shelf: Path, kept: set[str | None]) -> None:
    for path in shelf.iterdir():
        ours = path.is_dir() and not path.is_symlink() and (path / PROVENANCE).is_file()
        if ours and path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)


def _flush(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(
                path.stat().st_mode | 0o200
            )  # stored files are read-only, published ones their owner's
            with path.open("rb") as file:
                os.fsync(file.fileno())
