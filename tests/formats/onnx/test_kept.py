"""Units of an INT8 graph that stay in floating point although values were made for them."""

from pathlib import Path

import pytest
import torch

from quantflow.formats.onnx.int8_values import Int8Values
from quantflow.model.families import FAMILIES
from quantflow.quantize.int8 import Int8Linear
from quantflow.quantize.int8_block import Int8Block, int8_file, save_int8_block
from quantflow.quantize.params import int8_scheme
from tests.tiny_models import random_model, tiny_config

LLAMA, W8A8 = FAMILIES["llama"], int8_scheme("w8a8")
UP, DOWN = "model.layers.0.mlp.up_proj", "model.layers.0.mlp.down_proj"
NORM, LAST = "model.layers.0.post_attention_layernorm.weight", "model.norm.weight"


def values(outputs: int, inputs: int) -> Int8Linear:
    q = torch.ones(outputs, inputs, dtype=torch.int8)
    q[:, 1] = 0
    return Int8Linear(
        q=q,
        scales=torch.full((outputs,), 0.5),
        input=None,
        floating_channels=torch.tensor([1]),
        floating_weight=torch.ones(outputs, 1),
    )


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A stage that folded a scale of 2 for `down` into `up`, of 4 for `gate_up` and of 8 for the head."""
    block = Int8Block(
        {UP: values(128, 64), DOWN: values(64, 128)},
        {f"{UP}.weight": torch.full((128,), 2.0), NORM: torch.full((64,), 4.0)},
    )
    head = Int8Block({"lm_head": values(400, 64)}, {LAST: torch.full((64,), 8.0)})
    for index, own in ((0, block), (None, head)):
        path = int8_file(tmp_path, W8A8.id, index)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_int8_block(path, own)
    return tmp_path


def test_a_kept_unit_s_folds_are_undone_and_its_neighbours_values_stay_true(
    stage: Path, tmp_path: Path
) -> None:
    source = random_model(tmp_path / "model", tiny_config(num_hidden_layers=1))

    def chosen(*kept: str) -> Int8Values:
        return Int8Values(stage, W8A8, LLAMA, 1, frozenset(kept))

    assert chosen().folded(source).names == {f"{UP}.weight", NORM, LAST}
    assert torch.equal(chosen()(UP).scales, torch.full((128,), 0.5))
    without_down = chosen("model.layers.0.down")
    assert without_down.folded(source).names == {NORM, LAST}
    assert torch.equal(without_down(UP).scales, torch.full((128,), 1.0))
    assert torch.equal(without_down(UP).floating_weight, torch.full((128, 1), 2.0))
    assert torch.equal(without_down(UP).q, chosen()(UP).q)
    assert torch.equal(without_down(DOWN).scales, chosen()(DOWN).scales)
    assert chosen("model.layers.0.gate_up").folded(source).names == {f"{UP}.weight", LAST}
    assert chosen("lm_head").folded(source).names == {f"{UP}.weight", NORM}
