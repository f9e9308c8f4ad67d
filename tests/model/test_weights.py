"""Weights of a Hugging Face folder, in one file or in shards."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from quantflow.errors import SourceError
from quantflow.model import weights
from quantflow.model.weights import INDEX_FILE, SafetensorsReader
from tests.tiny_models import random_model, tiny_config


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("sharded"), tiny_config(), max_shard_size="200KB")


def rewrite_index(folder: Path, tmp_path: Path, name: str, shard: str) -> Path:
    for file in folder.glob("*.safetensors"):
        (tmp_path / file.name).symlink_to(file)
    index = json.loads((folder / INDEX_FILE).read_text())
    index["weight_map"][name] = shard
    (tmp_path / INDEX_FILE).write_text(json.dumps(index))
    return tmp_path


def test_shards_are_read_as_one_model(sharded: Path) -> None:
    expected: dict[str, torch.Tensor] = {}
    shards = sorted(sharded.glob("model-*.safetensors"))
    assert len(shards) > 2
    for shard in shards:
        expected |= load_file(shard)
    reader = SafetensorsReader(sharded)
    assert reader.names() == expected.keys()
    assert all(torch.equal(reader.read(name), tensor) for name, tensor in expected.items())


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    save_file({"a.weight": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(SourceError, match=r"b\.weight is missing"):
        SafetensorsReader(tmp_path).read("b.weight")


def test_a_missing_shard_is_named(sharded: Path, tmp_path: Path) -> None:
    folder = rewrite_index(sharded, tmp_path, "model.norm.weight", "model-00099-of-00099.safetensors")
    with pytest.raises(SourceError, match="model-00099-of-00099"):
        SafetensorsReader(folder)


def test_an_index_that_names_a_tensor_its_shard_lacks_is_refused(sharded: Path, tmp_path: Path) -> None:
    shard = sorted(sharded.glob("model-*.safetensors"))[0].name
    folder = rewrite_index(sharded, tmp_path, "model.layers.9.extra.weight", shard)
    with pytest.raises(SourceError, match=r"model\.layers\.9\.extra\.weight"):
        SafetensorsReader(folder)


def test_an_index_cannot_lead_out_of_its_folder(sharded: Path, tmp_path: Path) -> None:
    folder = rewrite_index(sharded, tmp_path, "model.norm.weight", "../elsewhere.safetensors")
    with pytest.raises(SourceError, match="outside its folder"):
        SafetensorsReader(folder)


@pytest.mark.parametrize("content", ["[]", "{", '{"weight_map": {"a": 3}}', '{"weight_map": []}'])
def test_an_index_of_another_form_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / INDEX_FILE).write_text(content)
    with pytest.raises(SourceError, match="no index of safetensors shards"):
        SafetensorsReader(tmp_path)


def test_a_folder_without_weights_says_so(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"neither model\.safetensors nor"):
        SafetensorsReader(tmp_path)


@pytest.mark.parametrize("rows", [1, 7, 8, 9])
def test_a_table_in_another_type_is_read_in_pieces_and_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    stored = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
    save_file({"lm_head.weight": stored}, tmp_path / "model.safetensors")
    reader = SafetensorsReader(tmp_path)
    monkeypatch.setattr(weights, "TABLE_BYTES", rows * 3 * 2)
    whole: list[str] = []
    real = reader.read

    def read(name: str) -> torch.Tensor:
        whole.append(name)
        return real(name)

    monkeypatch.setattr(reader, "read", read)
    table = weights.read_table(reader, "lm_head.weight", torch.device("cpu"), torch.float32)
    assert table.dtype == torch.float32 and torch.equal(table, stored.float())
    assert bool(whole) == (rows >= 8)
    same = weights.read_table(reader, "lm_head.weight", torch.device("cpu"), torch.bfloat16)
    assert torch.equal(same, stored)
