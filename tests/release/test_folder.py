"""Versions of an artifact in a folder: the newest, the one before, and nothing half-written."""

import json
import os
from pathlib import Path

import pytest

from quantflow.errors import ArtifactError, StoreError
from quantflow.pipeline.digest import file_digest
from quantflow.release.folder import publish_version, roll_back


def nobody_waits(who: str) -> None:
    raise AssertionError(who)


def nothing(folder: Path) -> None:
    pass


def artifact(folder: Path, content: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_text(content)
    files = {"model.safetensors": file_digest(folder / "model.safetensors")}
    (folder / "quantflow.json").write_text(json.dumps({"files": files}))
    return folder


def publish(made: Path, shelf: Path, version: str) -> bool:
    return publish_version(made, shelf, version, nothing, nobody_waits).changed


def current(shelf: Path) -> str:
    return (shelf / "current" / "model.safetensors").read_text()


def versions(shelf: Path) -> set[str]:
    return {path.name for path in shelf.iterdir() if path.is_dir() and not path.is_symlink()}


def test_the_newest_is_current_the_one_before_is_kept_and_older_ones_go(tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    for number in range(4):
        publish(artifact(tmp_path / "made", f"version {number}"), shelf, f"run-{number}")
    assert current(shelf) == "version 3"
    assert (shelf / "previous" / "model.safetensors").read_text() == "version 2"
    assert versions(shelf) == {"run-2", "run-3"}


def test_bytes_that_are_current_are_not_published_twice(tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    assert publish(artifact(tmp_path / "made", "the same"), shelf, "run-1")
    assert not publish(artifact(tmp_path / "made", "the same"), shelf, "run-2")
    assert versions(shelf) == {"run-1"}


def test_rolling_back_returns_to_the_version_before_and_again_to_the_newest(tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    for number in (1, 2):
        publish(artifact(tmp_path / "made", f"version {number}"), shelf, f"run-{number}")
    assert roll_back(shelf, nobody_waits) == ("run-2", "run-1")
    assert current(shelf) == "version 1"
    assert roll_back(shelf, nobody_waits) == ("run-1", "run-2")
    assert current(shelf) == "version 2"


def test_there_is_nothing_to_roll_back_to_after_the_first(tmp_path: Path) -> None:
    publish(artifact(tmp_path / "made", "version 1"), tmp_path / "shelf", "run-1")
    with pytest.raises(ArtifactError, match="no version to return to"):
        roll_back(tmp_path / "shelf", nobody_waits)
    with pytest.raises(ArtifactError, match="nothing was published there"):
        roll_back(tmp_path / "elsewhere", nobody_waits)


def test_a_failure_leaves_what_was_published_as_it_was(tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    publish(artifact(tmp_path / "made", "version 1"), shelf, "run-1")

    def full(folder: Path) -> None:
        raise OSError(28, os.strerror(28), str(folder / "report.json"))

    with pytest.raises(StoreError, match="disk is full"):
        publish_version(artifact(tmp_path / "made", "version 2"), shelf, "run-2", full, nobody_waits)
    assert current(shelf) == "version 1"
    assert versions(shelf) == {"run-1"}


def test_folders_that_are_no_versions_are_left_alone(tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    (shelf / "notes").mkdir(parents=True)
    publish(artifact(tmp_path / "made", "version 1"), shelf, "run-1")
    assert versions(shelf) == {"notes", "run-1"}


def test_a_folder_in_the_place_of_current_is_refused(tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    (shelf / "current").mkdir(parents=True)
    (shelf / "current" / "mine").touch()
    with pytest.raises(StoreError, match="in the way"):
        publish(artifact(tmp_path / "made", "version 1"), shelf, "run-1")
    assert (shelf / "current" / "mine").exists()
