"""Publishes an artifact to a repository of the model hub, as one commit: all of its files or none."""

from collections.abc import Callable
from pathlib import Path


def publish_to_hub(
    artifact: Path, repository: str, message: str, add: Callable[[Path], None], staging: Path
) -> str:
    """Upload a folder as one commit; returns its address.

    Files of an earlier version that the new one does not have are removed in the same commit; the version
    before stays as the commit before.

    Args:
        artifact: The artifact's folder.
        repository: `org/name`; made, private, if it is not there.
        message: Of the commit.
        add: Puts the report and the model card beside the files, given the folder to upload.
        staging: An empty folder on the artifact's file system, for links to its files.

    Raises:
        RecipeError: There is no such repository for this user.
        SourceError: The hub cannot be reached or refuses.
    """
    from huggingface_hub import HfApi

    from quantflow.source.hub_errors import plain_errors

    for path in artifact.iterdir():
        (staging / path.name).symlink_to(path.resolve())
    add(staging)
    api = HfApi()
    with plain_errors(repository, None):
        api.create_repo(repository, private=True, exist_ok=True)
        done = api.upload_folder(
            repo_id=repository, folder_path=staging, commit_message=message, delete_patterns="*"
        )
    return str(done.commit_url)
