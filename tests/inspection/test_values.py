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


def test_a_weight_that_is_zero_throughout_is_told(
    inspect: Inspect, folder: Path, reporter: RecordingReporter
) -> None:
    change(folder, lambda w: w[UP].zero_())
    inspect(folder)
    assert [(event.code, event.detail) for event in reporter.events] == [
        ("weights-all-zero", {"tensors": [UP]})
    ]


def test_values_that_overflow_on_the_way_are_noticed(inspect: Inspect, tmp_path: Path) -> None:
    folder = random_model(tmp_path / "random", tiny_config(), dtype=torch.float32)
    tiny_tokenizer().save_pretrained(folder)
    change(folder, lambda w: w["model.layers.0.mlp.down_proj.weight"].fill_(3e38))
    with pytest.raises(SourceError, match="logits are not finite"):
        inspect(folder)
