"""A checkpoint that lacks tensors, holds no numbers or contradicts itself is refused with the tensor's
name."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from quantflow.errors import SourceError
from quantflow.inspection.tensors import check_tensors, in_order
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from tests.reporting import RecordingReporter

Weights = dict[str, torch.Tensor]
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
UP, NORM = "model.layers.1.mlp.up_proj.weight", "model.norm.weight"


@pytest.fixture
def folder(tiny_llama: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_llama, tmp_path / "model"))


def change(folder: Path, spoil: Callable[[Weights], Any], **config: Any) -> None:
    weights = load_file(folder / "model.safetensors")
    spoil(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))


def fill(name: str, value: float, count: int) -> Callable[[Weights], Any]:
    return lambda weights: weights[name].view(-1)[-count:].fill_(value)


def check(folder: Path, reporter: RecordingReporter) -> None:
    reader = SafetensorsReader(folder)
    check_tensors(StreamedDecoder(folder, reader), reader, reporter)


def test_tensors_come_in_the_order_of_their_blocks() -> None:
    names = ["model.layers.10.x", "model.layers.9.x", "lm_head", "model.norm"]
    assert sorted(names, key=in_order) == ["lm_head", "model.layers.9.x", "model.layers.10.x", "model.norm"]


def test_missing_tensors_are_counted_and_the_first_is_named(
    folder: Path, reporter: RecordingReporter
) -> None:
    change(folder, lambda w: (w.pop(UP), w.pop(NORM)))
    with pytest.raises(SourceError, match=rf"2 of the 29 tensors of the model are missing, the first {UP}"):
        check(folder, reporter)


def test_a_tensor_of_another_shape_is_named(folder: Path, reporter: RecordingReporter) -> None:
    change(folder, lambda w: w.update({UP: torch.ones(64, 64, dtype=torch.bfloat16)}))
    with pytest.raises(SourceError, match=rf"{UP} has shape \[64, 64\], config.json makes it \[128, 64\]"):
        check(folder, reporter)


def test_tensors_of_no_use_are_told_but_not_those_that_old_models_store(
    folder: Path, reporter: RecordingReporter
) -> None:
    extra = {"extra.weight": torch.ones(1), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    change(folder, lambda w: w.update(extra))
    check(folder, reporter)
    (event,) = reporter.events
    assert (event.code, event.detail["tensors"]) == ("tensors-not-used", ["extra.weight"])


def test_a_head_that_contradicts_its_being_tied_is_refused(folder: Path, reporter: RecordingReporter) -> None:
    change(folder, lambda w: w.update({HEAD: w[EMBEDDING].flip(0).contiguous()}))
    with pytest.raises(SourceError, match="is another tensor than"):
        check(folder, reporter)


def test_a_tied_head_that_is_stored_twice_the_same_is_sound(
    folder: Path, reporter: RecordingReporter
) -> None:
    change(folder, lambda w: w.update({HEAD: w[EMBEDDING].clone()}))
    check(folder, reporter)
    assert reporter.events == []


def test_a_tied_model_may_store_the_head_alone(folder: Path, reporter: RecordingReporter) -> None:
    change(folder, lambda w: w.update({HEAD: w.pop(EMBEDDING)}))
    check(folder, reporter)


def test_a_head_that_is_missing_where_it_is_not_tied_says_which_key_decides(
    folder: Path, reporter: RecordingReporter
) -> None:
    change(folder, len, tie_word_embeddings=False)
    with pytest.raises(SourceError, match="the head is not tied to the embedding, and lm_head"):
        check(folder, reporter)
