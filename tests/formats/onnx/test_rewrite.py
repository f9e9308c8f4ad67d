"""Quantized products in a graph: what ONNX Runtime computes is what the codes say."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from quantflow.errors import QuantizationError
from quantflow.formats.onnx.linears import GraphLinear, Part
from quantflow.formats.onnx.plans import Int8Plan, NBitsPlan
from quantflow.formats.onnx.rewrite import rewrite
from quantflow.formats.onnx.values import Latest, given_int8
from quantflow.quantize.codes import dequantize
from quantflow.quantize.grid import GridKind
from quantflow.quantize.int8 import InputRange, Int8Linear, emulate, int8_dequantized, int8_weight
from quantflow.quantize.rtn import quantize_rtn
from tests.formats.onnx.graphs import (
    DOWN_WEIGHT,
    HEAD_WEIGHT,
    down_linear,
    head_linear,
    product_graph,
    random_weight,
    rewritten,
    run_graph,
    tied_graph,
)

RANGE = InputRange(scale=6 / 255, zero_point=120)


def inputs(tokens: int, width: int) -> torch.Tensor:
    return torch.randn(tokens, width, generator=torch.Generator().manual_seed(9))


def plan_of(linear: Int8Linear) -> Int8Plan:
    channels = tuple(linear.floating_channels.tolist())
    return Int8Plan(lambda: linear, linear.input, channels, linear.remainder)


@pytest.mark.parametrize("how", [RANGE, InputRange(scale=6 / 127, zero_point=60, reduced=True), None])
@pytest.mark.parametrize("channels", [(), (3, 40)])
def test_int8_graph_without_fusions_computes_what_the_emulation_does(
    tmp_path: Path, how: InputRange | None, channels: tuple[int, ...]
) -> None:
    weight, x = random_weight(24, 64), inputs(7, 64)
    x[:, 3] *= 100
    linear = replace(int8_weight(weight, torch.tensor(channels, dtype=torch.int64)), input=how)
    rewritten(product_graph(tmp_path / "base", weight), down_linear(weight), plan_of(linear), tmp_path / "q")
    (y,) = run_graph(tmp_path / "q", {"x": x.numpy()})
    assert np.allclose(y, emulate(linear, x).numpy(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("level", ["BASIC", "ALL"])
def test_what_rounding_leaves_is_multiplied_in_int8_as_well(tmp_path: Path, level: str) -> None:
    weight, x = random_weight(24, 64), inputs(7, 64)
    left = InputRange(scale=RANGE.scale / 254, zero_point=128)
    linear = replace(int8_weight(weight, torch.tensor([3])), input=RANGE, remainder=left)
    rewritten(product_graph(tmp_path / "base", weight), down_linear(weight), plan_of(linear), tmp_path / "q")
    (y,) = run_graph(tmp_path / "q", {"x": x.numpy()}, level=level)
    assert np.allclose(y, emulate(linear, x).numpy(), rtol=1e-4, atol=1e-3)
    once = replace(linear, remainder=None)
    assert not np.allclose(y, emulate(once, x).numpy(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("channels", [(), (3, 40)])
def test_fused_int8_products_are_exact_on_every_processor(tmp_path: Path, channels: tuple[int, ...]) -> None:
    # Inputs and weights at the ends of their ranges: sums in 16 bits would overflow.
    weight = torch.where(random_weight(32, 256) > 0, 1.0, -1.0) * (1 + 0.01 * random_weight(32, 256, 1))
    linear = replace(
        int8_weight(weight, torch.tensor(channels, dtype=torch.int64)),
        input=InputRange(1 / 255, zero_point=0),
    )
    x = torch.ones(5, 256) - 0.001 * inputs(5, 256).abs()
    rewritten(product_graph(tmp_path / "base", weight), down_linear(weight), plan_of(linear), tmp_path / "q")
    (y,) = run_graph(tmp_path / "q", {"x": x.numpy()}, level="ALL")
    assert np.allclose(y, emulate(linear, x).numpy(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("bits", "symmetric"), [(8, True), (4, False), (4, True)])
@pytest.mark.parametrize("width", [64, 96])
def test_matmulnbits_computes_what_the_codes_stand_for(
    tmp_path: Path, bits: int, symmetric: bool, width: int
) -> None:
    weight, x = random_weight(24, width) + 0.3, inputs(7, width)
    codes = quantize_rtn(weight, kind=GridKind(bits, symmetric), group_size=32)
    plan = NBitsPlan(lambda: codes, bits, 32, symmetric)
    rewritten(product_graph(tmp_path / "base", weight), down_linear(weight), plan, tmp_path / "q")
    (y,) = run_graph(tmp_path / "q", {"x": x.numpy()})
    assert np.allclose(y, (x @ dequantize(codes).T).numpy(), rtol=1e-4, atol=1e-3)


def test_an_embedding_tied_to_a_quantized_head_stays_in_floating_point(tmp_path: Path) -> None:
    weight = random_weight(50, 32)
    graph = tied_graph(tmp_path / "base", weight)
    linear = int8_weight(weight)
    written = rewritten(graph, head_linear(weight), plan_of(linear), tmp_path / "q")
    assert HEAD_WEIGHT not in written.initializers
    ids = np.array([3, 49], dtype=np.int64)
    logits, embedded = run_graph(tmp_path / "q", {"ids": ids})
    assert np.array_equal(embedded, weight[ids].numpy())
    assert np.allclose(logits, (weight[ids] @ int8_dequantized(linear).T).numpy(), atol=1e-4)


def test_what_is_not_planned_stays_as_it_is(tmp_path: Path) -> None:
    weight = random_weight(24, 64)
    graph = product_graph(tmp_path / "base", weight)
    assert rewrite(graph, (down_linear(weight),), {}, 4) == {}
    assert [node.op_type for node in graph.model.graph.node] == ["MatMul"]
    assert [tensor.name for tensor in graph.model.graph.initializer] == [DOWN_WEIGHT]


def test_an_opset_without_scales_per_channel_is_refused(tmp_path: Path) -> None:
    weight = random_weight(24, 64)
    graph = product_graph(tmp_path / "base", weight, opset=12)
    with pytest.raises(QuantizationError, match="opset 12"):
        rewrite(graph, (down_linear(weight),), {DOWN_WEIGHT: plan_of(int8_weight(weight))}, 4)


def fused() -> tuple[GraphLinear, dict[str, Int8Linear]]:
    parts = {
        name: replace(int8_weight(random_weight(8, 16, seed)), input=RANGE) for seed, name in enumerate("qkv")
    }
    return GraphLinear(DOWN_WEIGHT, "model.layers.0.qkv", tuple(Part(name) for name in "qkv"), 16, 24), parts


def test_linears_that_a_graph_fuses_become_one_in_their_order() -> None:
    linear, parts = fused()
    plan = given_int8(linear, parts.__getitem__, Latest())
    assert isinstance(plan, Int8Plan)
    assert plan.input == RANGE
    x = inputs(4, 16)
    apart = torch.cat([emulate(parts[name], x) for name in "qkv"], -1)
    assert torch.allclose(emulate(plan.load(), x), apart, atol=1e-5)


def test_linears_of_one_product_that_round_their_input_differently_are_refused() -> None:
    linear, parts = fused()
    parts["k"] = replace(parts["k"], input=replace(RANGE, zero_point=1))
    plan = given_int8(linear, parts.__getitem__, Latest())
    with pytest.raises(QuantizationError, match="rounds its input otherwise"):
        plan.load()
