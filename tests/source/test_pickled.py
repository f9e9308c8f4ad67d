"""Pickled weights become safetensors where the recipe allows it, and run nothing in any case."""

import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from quantflow.errors import SourceError
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.digest import file_digest
from quantflow.source.checkpoint import Checkpoint, load_checkpoint
from quantflow.source.identify import source_params
from quantflow.source.stage import run
from quantflow.source.uri import parse
from tests.reporting import RecordingReporter


@pytest.fixture
def weights(float16_folder: Path) -> dict[str, torch.Tensor]:
    return load_file(float16_folder / "model.safetensors")


@pytest.fixture
def folder(float16_folder: Path, tmp_path: Path) -> Path:
    """The tiny model without its weights."""
    target = Path(shutil.copytree(float16_folder, tmp_path / "model"))
    (target / "model.safetensors").unlink()
    return target


def checkpoint_of(
    folder: Path, output: Path, reporter: RecordingReporter, *, allow: bool = True
) -> Checkpoint:
    output.mkdir()
    params = source_params(parse(str(folder), Path("/")), None, file_digest, allow_pickle=allow)
    run(params, {}, output, reporter)
    return load_checkpoint(output)


def test_one_file_is_converted_bit_for_bit_and_said_to_be(
    folder: Path, weights: dict[str, torch.Tensor], tmp_path: Path, reporter: RecordingReporter
) -> None:
    torch.save(weights, folder / "pytorch_model.bin")
    checkpoint = checkpoint_of(folder, tmp_path / "out", reporter)
    assert checkpoint.folder == tmp_path / "out" / "checkpoint"
    reader = SafetensorsReader(checkpoint.folder)
    assert reader.names() == weights.keys()
    assert all(torch.equal(reader.read(name), tensor) for name, tensor in weights.items())
    assert reporter.codes() == ["weights-unpickled"]
    assert "pytorch_model.bin" not in checkpoint.files


def test_without_being_allowed_they_are_refused_with_the_key_that_would_allow_it(
    folder: Path, weights: dict[str, torch.Tensor], tmp_path: Path, reporter: RecordingReporter
) -> None:
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(SourceError, match="pickled") as caught:
        checkpoint_of(folder, tmp_path / "out", reporter, allow=False)
    assert "model.allow_pickle: true" in caught.value.hint


def test_shards_stay_shards(
    folder: Path, weights: dict[str, torch.Tensor], tmp_path: Path, reporter: RecordingReporter
) -> None:
    names = sorted(weights)
    files = {f"pytorch_model-0000{n}-of-00002.bin": names[n - 1 :: 2] for n in (1, 2)}
    for file, held in files.items():
        torch.save({name: weights[name] for name in held}, folder / file)
    index = {"weight_map": {name: file for file, held in files.items() for name in held}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    checkpoint = checkpoint_of(folder, tmp_path / "out", reporter)
    reader = SafetensorsReader(checkpoint.folder)
    assert reader.shards == {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
    assert all(torch.equal(reader.read(name), tensor) for name, tensor in weights.items())


def test_a_tied_head_that_is_stored_twice_is_stored_once(
    folder: Path, weights: dict[str, torch.Tensor], tmp_path: Path, reporter: RecordingReporter
) -> None:
    torch.save(
        weights | {"lm_head.weight": weights["model.embed_tokens.weight"]}, folder / "pytorch_model.bin"
    )
    checkpoint = checkpoint_of(folder, tmp_path / "out", reporter)
    assert "lm_head.weight" not in SafetensorsReader(checkpoint.folder).names()


def test_a_changed_pickle_is_another_source(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    identities = set()
    for value in (1.0, 2.0):
        weights["model.norm.weight"].fill_(value)
        torch.save(weights, folder / "pytorch_model.bin")
        ref = parse(str(folder), Path("/"))
        identities.add(source_params(ref, None, file_digest, allow_pickle=True).identity)
    assert len(identities) == 2


def test_safetensors_are_taken_where_there_are_both(
    float16_folder: Path, tmp_path: Path, reporter: RecordingReporter
) -> None:
    folder = Path(shutil.copytree(float16_folder, tmp_path / "both"))
    (folder / "pytorch_model.bin").write_bytes(b"no pickle at all")
    assert checkpoint_of(folder, tmp_path / "out", reporter).folder == folder


class Payload:
    """What a hostile pickle does when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def test_a_pickle_that_would_run_something_is_refused_and_runs_nothing(
    folder: Path, weights: dict[str, torch.Tensor], tmp_path: Path, reporter: RecordingReporter
) -> None:
    torch.save(weights | {"extra": Payload(tmp_path / "was-here")}, folder / "pytorch_model.bin")
    with pytest.raises(SourceError, match="restricted loader refuses it"):
        checkpoint_of(folder, tmp_path / "out", reporter)
    assert not (tmp_path / "was-here").exists()


def packed(path: Path) -> None:
    """Write the archive anew with its content deflated."""
    with zipfile.ZipFile(path) as archive:
        content = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)


def test_data_that_unpacks_to_more_than_it_is_is_refused_unread(
    folder: Path, tmp_path: Path, reporter: RecordingReporter
) -> None:
    torch.save({"zeros": torch.zeros(1_000_000)}, folder / "pytorch_model.bin")
    packed(folder / "pytorch_model.bin")
    with pytest.raises(SourceError, match="packed data"):
        checkpoint_of(folder, tmp_path / "out", reporter)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "restricted loader refuses it"),
        (b"no pickle", "restricted loader refuses it"),
        ([torch.ones(2)], "no mapping of names"),
        ({"name": "text"}, "'name', which is no plain tensor"),
        ({1: torch.ones(2)}, "1, which is no plain tensor"),
        ({"complex": torch.ones(2, dtype=torch.complex64)}, "'complex', which is no plain tensor"),
        ({}, "no tensors"),
    ],
)
def test_what_is_no_dictionary_of_tensors_is_refused(
    content: Any, complaint: str, folder: Path, tmp_path: Path, reporter: RecordingReporter
) -> None:
    if isinstance(content, bytes):
        (folder / "pytorch_model.bin").write_bytes(content)
    else:
        torch.save(content, folder / "pytorch_model.bin")
    with pytest.raises(SourceError, match=complaint):
        checkpoint_of(folder, tmp_path / "out", reporter)


@pytest.mark.parametrize(
    ("index", "complaint"),
    [
        ("{", "no index of pickled shards"),
        ('{"weight_map": []}', "no index of pickled shards"),
        ('{"weight_map": {"a": 3}}', "no index of pickled shards"),
        ('{"weight_map": {"a": "../up.bin"}}', "a shard that cannot be one"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "a shard that cannot be one"),
        ('{"weight_map": {"a": "gone.bin"}}', "1 of 1 shards are missing, such as gone.bin"),
        ('{"weight_map": {}}', "0 of 0 shards are missing"),
    ],
)
def test_an_index_that_is_none_is_refused(
    index: str, complaint: str, folder: Path, tmp_path: Path, reporter: RecordingReporter
) -> None:
    (folder / "pytorch_model.bin.index.json").write_text(index)
    with pytest.raises(SourceError, match=complaint):
        checkpoint_of(folder, tmp_path / "out", reporter)
