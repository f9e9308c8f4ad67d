"""Calibration in bfloat16: the forward's products are, sums over activations and the weights are not."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from quantflow.calibrate.statistics import InputCollector
from quantflow.calibrate.stream import calibrate_blocks
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.forward import BlockPass
from quantflow.model.passes import PassProgress
from quantflow.model.weights import SafetensorsReader
from tests.reporting import RecordingReporter
from tests.tiny_models import random_model, tiny_config

# Eight bits of mantissa: a product of two rounded numbers is off by at most 2 · 2⁻⁹ of its size.
ROUNDING = 2.0**-8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model whose weights bfloat16 cannot hold."""
    return random_model(tmp_path / "model", tiny_config(), dtype=torch.float16)


def states_of(folder: Path, progress: Path, products: torch.dtype) -> tuple[StreamedDecoder, BlockPass]:
    ids = torch.randint(0, 400, (4, 32), generator=torch.Generator().manual_seed(0))
    decoder = StreamedDecoder(folder, SafetensorsReader(folder))
    passed = PassProgress(RecordingReporter(progress_folder=progress))
    return decoder, BlockPass(decoder, [ids[:3], ids[3:]], passed, products)


def test_products_are_in_bfloat16_weights_and_hidden_states_in_float32(folder: Path, tmp_path: Path) -> None:
    for products in (torch.bfloat16, torch.float32):
        decoder, states = states_of(folder, tmp_path / str(products), products)
        seen: set[torch.dtype] = set()
        for block in calibrate_blocks(states, decoder.family.units, lambda batches: None):
            linear = block.module.get_submodule("mlp.down_proj")
            linear.register_forward_hook(lambda module, args, output, seen=seen: seen.add(output.dtype))
            weight = linear.get_parameter("weight")
            stored = SafetensorsReader(folder).read(f"model.layers.{block.index}.mlp.down_proj.weight")
            assert torch.equal(weight, stored.float())
            states.run(block.index, block.module, lambda batches: None)
        assert seen == {products}
        assert {hidden.dtype for hidden in states.hidden} == {torch.float32}


def test_hidden_states_are_near_those_of_float32_and_not_the_same(folder: Path, tmp_path: Path) -> None:
    outputs: list[Tensor] = []
    for products in (torch.float32, torch.bfloat16):
        _, states = states_of(folder, tmp_path / str(products), products)
        blocks = states.blocks()
        states.run(*next(blocks), lambda batches: None)
        outputs.append(torch.cat([hidden.flatten() for hidden in states.hidden]))
    exact, near = outputs
    difference = float((near - exact).norm() / exact.norm())
    # A block is seven products one after another, whose errors add up at worst.
    assert 0 < difference < 7 * ROUNDING


def test_a_gram_matrix_is_summed_in_float32_within_a_bfloat16_forward() -> None:
    linear = nn.Linear(8, 4)
    collector = InputCollector(linear, "example")
    batches = [torch.randn(1000, 8, generator=torch.Generator().manual_seed(i)) for i in range(20)]
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        for batch in batches:
            linear(batch)
    gram = collector.finish().gram
    x = torch.cat(batches).double()
    assert gram.dtype == torch.float32
    # bfloat16 would be off by 2⁻⁹ of an entry; float32 sums of 20,000 terms stay far below 2⁻¹⁶.
    assert float((gram.double() - x.T @ x).abs().max() / (x.T @ x).max()) < 2.0**-16


def test_an_interrupted_pass_in_bfloat16_goes_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    _, whole = states_of(folder, tmp_path / "whole", torch.bfloat16)
    for index, block in whole.blocks():
        whole.run(index, block, lambda batches: None)
    _, first = states_of(folder, tmp_path / "cut", torch.bfloat16)
    blocks = first.blocks()
    first.run(*next(blocks), lambda batches: None)
    next(blocks)  # the first block's states are kept now, and the second was never run
    _, rest = states_of(folder, tmp_path / "cut", torch.bfloat16)
    assert rest.passed == 1
    for index, block in rest.blocks():
        rest.run(index, block, lambda batches: None)
    assert all(torch.equal(a, b) for a, b in zip(whole.hidden, rest.hidden, strict=True))
