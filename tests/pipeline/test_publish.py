import os
from pathlib import Path

import pytest

from quantflow.pipeline import publish as publish_module
from quantflow.pipeline.publish import publish


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    folder = tmp_path / "store" / "artifact"
    (folder / "sub").mkdir(parents=True)
    (folder / "model.safetensors").write_text("weights")
    (folder / "sub" / "more.json").write_text("{}")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_the_published_files_are_the_stored_ones(stored: Path, tmp_path: Path) -> None:
    target = tmp_path / "artifacts" / "int4"
    publish(stored, target)
    assert contents(target) == contents(stored)
    assert (target / "model.safetensors").samefile(stored / "model.safetensors")


def test_tensors_of_onnx_are_copied_as_onnx_takes_links_for_an_attack(stored: Path, tmp_path: Path) -> None:
    (stored / "model.onnx.data").write_text("tensors")
    target = tmp_path / "artifacts" / "int8"
    publish(stored, target)
    assert (target / "model.onnx.data").read_text() == "tensors"
    assert (target / "model.onnx.data").stat().st_nlink == 1


def test_a_former_artifact_is_replaced_whole(stored: Path, tmp_path: Path) -> None:
    target = tmp_path / "artifacts" / "int4"
    target.mkdir(parents=True)
    (target / "old.bin").write_text("old")
    publish(stored, target)
    assert contents(target) == contents(stored)
    assert [p.name for p in target.parent.iterdir()] == ["int4"]


def test_a_damaged_artifact_is_mended(stored: Path, tmp_path: Path) -> None:
    target = tmp_path / "artifacts" / "int4"
    publish(stored, target)
    (target / "model.safetensors").unlink()
    (target / "model.safetensors").write_text("damaged")
    publish(stored, target)
    assert contents(target) == contents(stored)


def test_what_a_killed_run_left_beside_it_is_removed(stored: Path, tmp_path: Path) -> None:
    target = tmp_path / "artifacts" / "int4"
    publish(stored, target)
    for leftover in (".int4.new", ".int4.old"):
        (target.parent / leftover).mkdir()
    publish(stored, target)
    assert [p.name for p in target.parent.iterdir()] == ["int4"]


def test_where_links_are_impossible_files_are_copied(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(source: Path, place: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_links)
    target = tmp_path / "artifacts" / "int4"
    publish(stored, target)
    assert contents(target) == contents(stored)
    assert not (target / "model.safetensors").samefile(stored / "model.safetensors")


def test_a_full_disk_leaves_the_former_artifact(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "artifacts" / "int4"
    target.mkdir(parents=True)
    (target / "old.bin").write_text("old")

    def full(source: Path, place: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(publish_module, "_link_or_copy", full)
    with pytest.raises(OSError, match="No space"):
        publish(stored, target)
    assert contents(target) == {"old.bin": "old"}
    assert [p.name for p in target.parent.iterdir()] == ["int4"]


def test_a_former_artifact_is_back_where_the_new_one_cannot_be_put(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "artifacts" / "int4"
    target.mkdir(parents=True)
    (target / "old.bin").write_text("old")
    rename = Path.rename

    def full(self: Path, to: Path) -> Path:
        if self.name.endswith(".new"):
            raise OSError(28, "No space left on device")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="No space left"):
        publish(stored, target)
    assert contents(target) == {"old.bin": "old"}
    assert [p.name for p in target.parent.iterdir()] == ["int4"]


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_a_file_or_link_in_its_place_makes_way_and_what_a_link_leads_to_stays(
    stored: Path, tmp_path: Path, kind: str
) -> None:
    target, precious = tmp_path / "artifacts" / "int4", tmp_path / "precious"
    target.parent.mkdir()
    precious.mkdir()
    (precious / "mine.txt").write_text("mine")
    if kind == "file":
        target.write_text("a file")
    else:
        target.symlink_to(precious if kind == "link" else tmp_path / "nowhere")
    publish(stored, target)
    assert contents(target) == contents(stored)
    assert [p.name for p in target.parent.iterdir()] == ["int4"]
    assert contents(precious) == {"mine.txt": "mine"}
