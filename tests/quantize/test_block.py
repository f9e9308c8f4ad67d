"""One block: the scales and clips that ship are those that lower the error of its own linears' outputs."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from quantflow.calibrate.stream import calibrate_blocks
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.forward import BlockPass
from quantflow.model.passes import PassProgress
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize.block import QuantizedBlock, quantize_block_awq
from quantflow.quantize.codes import dequantize
from quantflow.quantize.grid import fit_grid, round_to_grid
from tests.reporting import RecordingReporter
from tests.tiny_models import random_model, tiny_config

GROUP = 32
LOUD = [3, 20, 41]


@dataclass(frozen=True)
class Problem:
    """What went into a block and what came out, with folds undone."""

    block: QuantizedBlock
    weights: Mapping[str, Tensor]
    grams: Mapping[str, Tensor]

    def effective(self, name: str) -> Tensor:
        """The weight that a linear's codes and the folds around it amount to, in the source's terms."""
        weight = dequantize(self.block.codes.linears[f"model.layers.0.{name}"])
        own = self.block.codes.folds.get(f"model.layers.0.{name}.weight")
        if own is not None:
            weight = weight * own.unsqueeze(1)
        unit = next(unit for unit in self.grams if name in UNITS[unit])
        return weight / self.block.choices[unit].scale if unit in self.block.choices else weight

    def error(self, name: str, quantized: Tensor) -> float:
        """Σ‖ΔW·x‖² over the calibration tokens."""
        delta = (quantized - self.weights[name]).double()
        gram = next(gram for unit, gram in self.grams.items() if name in UNITS[unit])
        return float(((delta @ gram.double()) * delta).sum())

    def by_group(self, name: str, quantized: Tensor) -> Tensor:
        """The part of the error that each group makes by itself, `[out, groups]`."""
        delta = (quantized - self.weights[name]).double().reshape(len(quantized), -1, GROUP)
        gram = next(gram for unit, gram in self.grams.items() if name in UNITS[unit]).double()
        blocks = torch.stack([gram[i : i + GROUP, i : i + GROUP] for i in range(0, len(gram), GROUP)])
        return torch.einsum("oga,gab,ogb->og", delta, blocks, delta)


UNITS: dict[str, tuple[str, ...]] = {}


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """Every unit's input has three channels thirty times as loud as the rest."""
    config = tiny_config(num_key_value_heads=4, num_hidden_layers=1)
    folder = random_model(tmp_path_factory.mktemp("loud"), config)
    tensors = load_file(folder / "model.safetensors")
    for name in ("input_layernorm", "post_attention_layernorm", "self_attn.v_proj", "mlp.up_proj"):
        tensors[f"model.layers.0.{name}.weight"][LOUD] *= 30
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    decoder = StreamedDecoder(folder, SafetensorsReader(folder))
    UNITS.update(decoder.family.units)
    ids = torch.randint(0, 400, (8, 64), generator=torch.Generator().manual_seed(0))
    states = BlockPass(decoder, [ids], PassProgress(RecordingReporter(progress_folder=folder / "progress")))
    for block in calibrate_blocks(states, decoder.family.units, lambda blocks: None):
        weights = {n: block.module.get_submodule(n).get_parameter("weight") for n in decoder.family.linears}
        grams = {unit: statistics.gram for unit, statistics in block.statistics.items()}
        result = quantize_block_awq(block, decoder.family, bits=4, group_size=GROUP, stored_as=torch.float32)
    return Problem(result, weights, grams)


def rounded(weight: Tensor) -> Tensor:
    groups = weight.reshape(weight.shape[0], -1, GROUP)
    return round_to_grid(groups, fit_grid(groups, 4)).reshape(weight.shape)


@pytest.mark.parametrize("unit", ["qkv", "o", "gate_up", "down"])
def test_a_block_s_units_lose_far_less_than_by_rounding_to_nearest(problem: Problem, unit: str) -> None:
    assert problem.block.choices[unit].exponent > 0
    awq = sum(problem.error(name, problem.effective(name)) for name in UNITS[unit])
    nearest = sum(problem.error(name, rounded(problem.weights[name])) for name in UNITS[unit])
    assert awq < 0.5 * nearest


def unclipped(problem: Problem, name: str) -> Tensor:
    """The linear scaled and folded as it ships, spanning every group's whole range."""
    unit = next(unit for unit in UNITS if name in UNITS[unit])
    scale = problem.block.choices[unit].scale
    own = problem.block.codes.folds.get(
        f"model.layers.0.{name}.weight", torch.ones(len(problem.weights[name]))
    )
    return rounded(problem.weights[name] * scale / own.unsqueeze(1)) * own.unsqueeze(1) / scale


@pytest.mark.parametrize(
    "name", ["self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
)
def test_clipping_lowers_the_error_that_the_unscaled_input_makes(problem: Problem, name: str) -> None:
    # The search promises this in every group, for the input as the linear gets it: divided by the scale.
    clipped, whole = (problem.by_group(name, w) for w in (problem.effective(name), unclipped(problem, name)))
    assert (clipped <= whole * (1 + 1e-4)).all()
    assert clipped.sum() < 0.97 * whole.sum()


@pytest.mark.parametrize("name", ["self_attn.q_proj", "self_attn.k_proj"])
def test_query_and_key_span_their_whole_range(problem: Problem, name: str) -> None:
    torch.testing.assert_close(problem.effective(name), unclipped(problem, name), rtol=1e-6, atol=1e-7)
