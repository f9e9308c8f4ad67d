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
from quantflow.inspection.weights import in_order
from tests.inspection.conftest import Inspect
from tests.reporting import RecordingReporter
from tests.tiny_models import random_model, tiny_config, tiny_tokenizer

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


def test_a_sound_model_passes_with_what_it_read_and_said(
    inspect: Inspect, folder: Path, reporter: RecordingReporter
) -> None:
    inspection = inspect(folder)
    assert reporter.events == []
    assert (inspection.vocab_size, inspection.tensors, inspection.chat_template) == (400, 29, True)
    # It has learnt letters of a customer service, and only in that it is better than a guess among 400.
    assert inspection.perplexities["letter"] < 200 < inspection.perplexities["english"]
    assert len(inspection.generations) == 4
    assert all(said.text for said in inspection.generations)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_the_first_tensor_with_no_numbers_is_named_with_how_many_there_are(
    value: float, inspect: Inspect, folder: Path
) -> None:
    change(folder, lambda w: (fill(NORM, value, 1)(w), fill(UP, value, 3)(w)))
    with pytest.raises(SourceError) as caught:
        inspect(folder)
    assert f"2 of 29 tensors hold values that are no finite numbers; the first is {UP}, 3 of its 8192" in str(
        caught.value
    )


def test_no_numbers_are_no_suspicion_that_could_be_allowed(inspect: Inspect, folder: Path) -> None:
    change(folder, fill(UP, float("nan"), 1))
    with pytest.raises(SourceError, match="no finite numbers"):
        inspect(folder, allow_suspect=True)


def test_tensors_come_in_the_order_of_their_blocks() -> None:
    names = ["model.layers.10.x", "model.layers.9.x", "lm_head", "model.norm"]
    assert sorted(names, key=in_order) == ["lm_head", "model.layers.9.x", "model.layers.10.x", "model.norm"]


def test_missing_tensors_are_counted_and_the_first_is_named(inspect: Inspect, folder: Path) -> None:
    change(folder, lambda w: (w.pop(UP), w.pop(NORM)))
    with pytest.raises(SourceError, match=rf"2 of the 29 tensors of the model are missing, the first {UP}"):
        inspect(folder)


def test_a_tensor_of_another_shape_is_named(inspect: Inspect, folder: Path) -> None:
    change(folder, lambda w: w.update({UP: torch.ones(64, 64, dtype=torch.bfloat16)}))
    with pytest.raises(SourceError, match=rf"{UP} has shape \[64, 64\], config.json makes it \[128, 64\]"):
        inspect(folder)


def test_tensors_of_no_use_are_told_but_not_those_that_old_models_store(
    inspect: Inspect, folder: Path, reporter: RecordingReporter
) -> None:
    extra = {"extra.weight": torch.ones(1), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    change(folder, lambda w: w.update(extra))
    inspect(folder)
    (event,) = reporter.events
    assert (event.code, event.detail["tensors"]) == ("tensors-not-used", ["extra.weight"])


def test_a_weight_that_is_zero_throughout_is_told(
    inspect: Inspect, folder: Path, reporter: RecordingReporter
) -> None:
    change(folder, lambda w: w[UP].zero_())
    inspect(folder)
    assert [(event.code, event.detail) for event in reporter.events] == [
        ("weights-all-zero", {"tensors": [UP]})
    ]


def test_a_head_that_contradicts_its_being_tied_is_refused(inspect: Inspect, folder: Path) -> None:
    change(folder, lambda w: w.update({HEAD: w[EMBEDDING].flip(0).contiguous()}))
    with pytest.raises(SourceError, match="is another tensor than"):
        inspect(folder)


def test_a_tied_head_that_is_stored_twice_the_same_is_sound(
    inspect: Inspect, folder: Path, reporter: RecordingReporter
) -> None:
    change(folder, lambda w: w.update({HEAD: w[EMBEDDING].clone()}))
    inspect(folder)
    assert reporter.events == []


def test_a_tied_model_may_store_the_head_alone(inspect: Inspect, folder: Path) -> None:
    change(folder, lambda w: w.update({HEAD: w.pop(EMBEDDING)}))
    inspect(folder)


def test_a_head_that_is_missing_where_it_is_not_tied_says_which_key_decides(
    inspect: Inspect, folder: Path
) -> None:
    change(folder, len, tie_word_embeddings=False)
    with pytest.raises(SourceError, match="the head is not tied to the embedding, and lm_head"):
        inspect(folder)


def test_values_that_overflow_on_the_way_are_noticed(inspect: Inspect, tmp_path: Path) -> None:
    folder = random_model(tmp_path / "random", tiny_config(), dtype=torch.float32)
    tiny_tokenizer().save_pretrained(folder)
    change(folder, lambda w: w["model.layers.0.mlp.down_proj.weight"].fill_(3e38))
    with pytest.raises(SourceError, match="logits are not finite"):
        inspect(folder)
