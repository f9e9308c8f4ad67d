"""Models of the Hugging Face hub: which commit a revision is, and its files."""

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

from quantflow.errors import SourceError
from quantflow.pipeline.events import Reporter
from quantflow.source.hub_download import fill_cache, has_content
from quantflow.source.hub_errors import plain_errors
from quantflow.source.hub_session import prepare_session
from quantflow.source.identify import CHECKPOINT_PATTERNS, CONFIG_NAME, PICKLE_PATTERNS, WEIGHT_PATTERNS

_SHA256 = re.compile(r"[0-9a-f]{64}")


def resolve_commit(repository: str, revision: str | None) -> str:
    """Commit of a repository that a branch, tag or commit stands for.

    Asks the hub; where it cannot be reached, what the local cache remembers is the answer.

    Args:
        repository: Hub id, `org/name`.
        revision: Branch, tag or commit; None for the default branch.

    Returns:
        40 hex digits.

    Raises:
        RecipeError: The hub has no such repository or revision, or does not show it to this user.
        SourceError: The hub cannot be reached and the cache does not know the revision.
    """
    prepare_session()
    with plain_errors(repository, revision):
        return HfApi().resolve_revision(repository, revision=revision).resolved


def fetch_config(repository: str, commit: str | None) -> Path:
    """The config.json of a model, alone; in the hub's own cache, beside what is there of the weights.

    Args:
        repository: Hub id, `org/name`.
        commit: As `resolve_commit` gave it.

    Raises:
        RecipeError: The hub has no such repository or revision, or does not show it to this user.
        SourceError: The hub cannot be reached and the file is not in the local cache.
    """
    prepare_session()
    with plain_errors(repository, commit):
        return Path(hf_hub_download(repository, CONFIG_NAME, revision=commit))


def fetch_snapshot(
    repository: str, commit: str, folder: Path, reporter: Reporter, *, allow_pickle: bool = False
) -> dict[str, str]:
    """Put the files of a repository that make the model into a folder.

    They are downloaded to the hub's own cache, resuming there what was begun, and hard-linked from it where
    the file system allows, so that they take their space once.

    Args:
        repository: Hub id, `org/name`.
        commit: As `resolve_commit` gave it.
        folder: Folder to make.
        reporter: Receives progress.
        allow_pickle: Whether to fetch pickled weights where there are no others.

    Returns:
        File name → SHA-256, of those whose content the hub knows by it and that has been checked here.

    Raises:
        RecipeError: The hub has no such repository or revision, or does not show it to this user.
        SourceError: The hub cannot be reached and the cache does not hold all files, or one is damaged.
    """
    prepare_session()
    with plain_errors(repository, commit):
        patterns: tuple[str, ...] = CHECKPOINT_PATTERNS
        snapshot = _snapshot(repository, commit, patterns, reporter)
        if allow_pickle and not _matching(snapshot, WEIGHT_PATTERNS):
            patterns = (*CHECKPOINT_PATTERNS, *PICKLE_PATTERNS)
            snapshot = _snapshot(repository, commit, patterns, reporter)
    folder.mkdir()
    for path in _matching(snapshot, patterns):
        _link_or_copy(path.resolve(), folder / path.name)  # the snapshot holds symbolic links
    return _checked(_matching(snapshot, patterns), repository, reporter)


def _snapshot(repository: str, commit: str, patterns: Iterable[str], reporter: Reporter) -> Path:
    names = list(patterns)
    with _without_bars():
        try:
            if not constants.is_offline_mode():
                fill_cache(repository, commit, names, reporter)
            return Path(snapshot_download(repository, revision=commit, allow_patterns=names))
        except (httpx.HTTPError, OfflineModeIsEnabled, LocalEntryNotFoundError) as error:
            # A commit never changes: what the cache has of it, complete, does without the hub.
            try:
                found = snapshot_download(
                    repository, revision=commit, allow_patterns=names, local_files_only=True
                )
            except LocalEntryNotFoundError:
                raise error  # noqa: B904 (its own cause says why)
            return Path(found)


@contextmanager
def _without_bars() -> Iterator[None]:
    """Keep the hub's client from drawing progress bars of its own into ours."""
    if are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def _matching(snapshot: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted({path for pattern in patterns for path in snapshot.glob(pattern) if path.is_file()})


def _checked(paths: Iterable[Path], repository: str, reporter: Reporter) -> dict[str, str]:
    """Hold every file against the hash that the cache keeps it under."""
    known = {}
    linked = [(path.name, path.resolve()) for path in paths]
    with reporter.track("Checking what the cache holds, files", len(linked)) as advance:
        for name, blob in linked:
            if not has_content(blob, blob.name):
                blob.unlink()
                raise SourceError(
                    f"the cache's copy of {name} is damaged: its content has another hash than the hub gave",
                    where=repository,
                    hint="It has been deleted: run again to fetch it anew.",
                )
            if _SHA256.fullmatch(blob.name):
                known[name] = blob.name
            advance(1)
    return known


def _link_or_copy(source: Path, place: Path) -> None:
    try:
        os.link(source, place)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, place)
