"""A model that is not listed has to compute block by block what it computes by itself."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from quantflow.errors import RecipeError
from quantflow.inspection.streaming import check_streaming
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from tests.tiny_models import random_model, tiny_config

# Parallel attention and MLP, tuples out of blocks, ALiBi, masks of several kinds.
WORKING: dict[str, dict[str, Any]] = {
    "cohere2": {"sliding_window": 5, "head_dim": 16},
    "falcon": {"alibi": True},
    "gpt_bigcode": {},
    "olmo3": {"sliding_window": 5},
}


def opened(folder: Path) -> StreamedDecoder:
    return StreamedDecoder(folder, SafetensorsReader(folder))


@pytest.fixture(scope="module")
def olmo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("olmo"), tiny_config("olmo"))


@pytest.mark.parametrize("kind", WORKING)
def test_models_of_many_builds_stream(kind: str, tmp_path: Path) -> None:
    check_streaming(opened(random_model(tmp_path, tiny_config(kind, **WORKING[kind]))))


def test_a_model_that_sees_later_tokens_is_refused(tmp_path: Path) -> None:
    folder = random_model(tmp_path, tiny_config("bert"))
    with pytest.raises(RecipeError, match="'bert' are not supported: its attention sees later tokens"):
        check_streaming(opened(folder))


def test_a_model_that_cannot_be_run_in_parts_is_refused_in_our_words(tmp_path: Path) -> None:
    folder = random_model(tmp_path, tiny_config("opt", ffn_dim=128, word_embed_proj_dim=64))
    with pytest.raises(RecipeError, match="'opt' are not supported: running it block by block fails"):
        check_streaming(opened(folder))


def refusal_of(decoder: StreamedDecoder, part: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(part)):
        check_streaming(decoder)


def test_a_state_that_blocks_share_is_found(olmo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = opened(olmo)
    forward = type(decoder._model.model).forward

    def adding_to_the_embedding(self: Any, **inputs: Any) -> Any:
        # What runs once for the whole model and depends on tokens does not come through a block's arguments.
        block = self.layers[2]
        ids = inputs.get("input_ids")
        bias = torch.zeros(64) if ids is None else ids.float().std() * torch.linspace(0, 0.1, 64)
        own = block.forward
        block.forward = lambda hidden, *args, **kwargs: own(hidden, *args, **kwargs) + bias
        try:
            return forward(self, **inputs)
        finally:
            block.forward = own

    monkeypatch.setattr(type(decoder._model.model), "forward", adding_to_the_embedding)
    refusal_of(decoder, "block by block it computes something else")


def test_a_linear_that_is_not_called_is_found(olmo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = opened(olmo)

    def by_hand(self: Any, x: Tensor) -> Tensor:
        gate = torch.nn.functional.linear(x, self.gate_proj.weight)
        result: Tensor = self.down_proj(self.act_fn(gate) * self.up_proj(x))
        return result

    monkeypatch.setattr(type(decoder._blocks[0].mlp), "forward", by_hand)
    refusal_of(decoder, "block 0 does not call mlp.gate_proj as a layer")


def test_linears_of_a_unit_with_different_inputs_are_found(
    olmo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = opened(olmo)

    def apart(self: Any, x: Tensor) -> Tensor:
        result: Tensor = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(2 * x))
        return result

    monkeypatch.setattr(type(decoder._blocks[0].mlp), "forward", apart)
    refusal_of(decoder, "in block 0 the layers of mlp.gate_up have different inputs")
