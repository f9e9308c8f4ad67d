"""Codes: what they stand for, and that their file gives them back."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from quantflow.errors import StoreError
from quantflow.quantize.codes import (
    BlockCodes,
    LinearCodes,
    block_file,
    dequantize,
    load_block,
    quantized_linears,
    save_block,
)


def random_codes(outputs: int = 8, inputs: int = 64, group_size: int = 32, seed: int = 0) -> LinearCodes:
    generator = torch.Generator().manual_seed(seed)
    groups = inputs // group_size
    return LinearCodes(
        q=torch.randint(16, (outputs, inputs), generator=generator).to(torch.uint8),
        scales=torch.rand(outputs, groups, generator=generator).half(),
        zero_points=torch.randint(16, (outputs, groups), generator=generator).to(torch.uint8),
        bits=4,
        group_size=group_size,
    )


def block() -> BlockCodes:
    linears = {
        "model.layers.0.mlp.up_proj": random_codes(),
        "model.layers.0.mlp.down_proj": random_codes(seed=1),
    }
    return BlockCodes(linears, {"model.layers.0.input_layernorm.weight": torch.linspace(0.5, 2, 64)})


def test_a_weight_is_code_minus_zero_point_times_scale_of_its_group() -> None:
    codes = random_codes()
    weight = dequantize(codes)
    assert weight.dtype == torch.float32
    for row in range(8):
        for column in range(64):
            group = column // 32
            difference = int(codes.q[row, column]) - int(codes.zero_points[row, group])
            assert float(weight[row, column]) == pytest.approx(difference * float(codes.scales[row, group]))


def test_a_saved_block_is_loaded_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "block.safetensors"
    save_block(path, block())
    loaded = load_block(path)
    assert loaded.linears.keys() == block().linears.keys() == quantized_linears(path)
    for name, codes in block().linears.items():
        read = loaded.linears[name]
        assert (read.bits, read.group_size) == (codes.bits, codes.group_size)
        assert torch.equal(read.q, codes.q)
        assert torch.equal(read.scales, codes.scales)
        assert torch.equal(read.zero_points, codes.zero_points)
    assert loaded.folds.keys() == block().folds.keys()
    assert all(torch.equal(loaded.folds[name], scale) for name, scale in block().folds.items())


def test_equal_codes_give_equal_bytes(tmp_path: Path) -> None:
    save_block(tmp_path / "a", block())
    backwards = BlockCodes(dict(reversed(list(block().linears.items()))), block().folds)
    save_block(tmp_path / "b", backwards)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_file_without_codes_is_refused(tmp_path: Path) -> None:
    save_file({"x": torch.ones(2)}, tmp_path / "x.safetensors")
    with pytest.raises(StoreError, match="does not hold the codes"):
        load_block(tmp_path / "x.safetensors")
    with pytest.raises(StoreError, match=r"block-00003\.safetensors"):
        load_block(block_file(tmp_path, "awq-w4-g32-asym", 3))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda c: LinearCodes(c.q, c.scales[:, :1], c.zero_points, 4, 32),
        lambda c: LinearCodes(c.q, c.scales, c.zero_points, 4, 48),
        lambda c: LinearCodes(c.q, c.scales.float(), c.zero_points, 4, 32),
        lambda c: LinearCodes(c.q.to(torch.int32), c.scales, c.zero_points, 4, 32),
    ],
)
def test_codes_whose_parts_do_not_fit_are_refused(spoil: Callable[[LinearCodes], LinearCodes]) -> None:
    with pytest.raises(ValueError, match="scales"):
        spoil(random_codes())


def test_groups_that_are_not_consecutive_are_stored_and_meant(tmp_path: Path) -> None:
    index = (torch.arange(64) % 2).to(torch.int32)
    codes = replace(random_codes(), group_index=index)
    weight = dequantize(codes)
    for column in range(64):
        group = column % 2
        difference = codes.q[:, column].float() - codes.zero_points[:, group].float()
        assert torch.equal(weight[:, column], difference * codes.scales[:, group].float())
    save_block(tmp_path / "b", BlockCodes({"x": codes, "y": random_codes()}, {}))
    loaded = load_block(tmp_path / "b").linears
    assert loaded["x"].group_index is not None and torch.equal(loaded["x"].group_index, index)
    assert loaded["y"].group_index is None


@pytest.mark.parametrize("index", [torch.zeros(64, dtype=torch.int64), torch.zeros(63, dtype=torch.int32)])
def test_an_index_of_another_type_or_length_is_refused(index: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="group_index"):
        replace(random_codes(), group_index=index)
