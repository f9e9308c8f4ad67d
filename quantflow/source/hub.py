"""Models of the Hugging Face hub: which commit a revision is, and its files."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)

from quantflow.errors import RecipeError, SourceError
from quantflow.source.identify import CHECKPOINT_PATTERNS


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
    with _plain_errors(repository, revision):
        return HfApi().resolve_revision(repository, revision=revision).resolved


def fetch_snapshot(repository: str, revision: str | None, folder: Path) -> None:
    """Put the files of a repository that make the model into a folder.

    They are downloaded to the hub's own cache, resuming there what was begun, and hard-linked from it where
    the file system allows, so that they take their space once.

    Args:
        repository: Hub id, `org/name`.
        revision: As `resolve_commit` gave it.
        folder: Folder to make.

    Raises:
        RecipeError: The hub has no such repository or revision, or does not show it to this user.
        SourceError: The hub cannot be reached and the cache does not hold all files.
    """
    with _plain_errors(repository, revision):
        snapshot = Path(
            snapshot_download(repository, revision=revision, allow_patterns=list(CHECKPOINT_PATTERNS))
        )
    folder.mkdir()
    for pattern in CHECKPOINT_PATTERNS:
        for path in snapshot.glob(pattern):
            _link_or_copy(path.resolve(), folder / path.name)  # the snapshot holds symbolic links


def _link_or_copy(source: Path, place: Path) -> None:
    try:
        os.link(source, place)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, place)


@contextmanager
def _plain_errors(repository: str, revision: str | None) -> Iterator[None]:
    where = repository if revision is None else f"{repository} at {revision}"
    try:
        yield
    except GatedRepoError as error:
        raise RecipeError(
            "this model of the hub is gated: its owner has to grant you access",
            where=where,
            hint="Accept its conditions on its page, then run `hf auth login` or set HF_TOKEN.",
        ) from error
    except RepositoryNotFoundError as error:
        raise RecipeError(
            "the hub has no such model, or does not show it to you",
            where=where,
            hint="Check the spelling; for a private model run `hf auth login` or set HF_TOKEN. "
            "A local folder that is not there is taken for a hub id too: start its path with ./ or /.",
        ) from error
    except RevisionNotFoundError as error:
        raise RecipeError(
            "the hub has this model but no such revision",
            where=where,
            hint="Write a branch, a tag or a commit of the repository, or leave model.revision out.",
        ) from error
    except HFValidationError as error:
        raise RecipeError("this is not a hub id", where=where, hint="Write org/name.") from error
    except (RevisionResolutionError, LocalEntryNotFoundError, HfHubHTTPError, httpx.HTTPError) as error:
        raise SourceError(
            "the hub cannot be reached and the model is not complete in the local cache",
            where=where,
            hint="Check the network, HF_ENDPOINT and HF_HUB_OFFLINE, or name a local folder instead.",
        ) from error
