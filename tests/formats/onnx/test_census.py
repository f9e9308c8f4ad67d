"""The census: what ONNX Runtime really runs, by unit."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quantflow.formats.onnx.census import take_census
from quantflow.formats.onnx.census_record import COMPUTES, Census, Computes, Expectation, ExpectedUnit
from quantflow.formats.onnx.params import OnnxScheme
from quantflow.formats.onnx.plans import Int8Plan, NBitsPlan, Planned
from quantflow.quantize.grid import GridKind
from quantflow.quantize.int8 import InputRange, int8_weight
from quantflow.quantize.rtn import quantize_rtn
from tests.formats.onnx.graphs import down_linear, product_graph, random_weight, rewritten, run_graph

UNIT = "model.layers.0.down"
WEIGHT = random_weight(64, 128)


def census_of(
    tmp_path: Path, scheme: OnnxScheme, plan: Planned | None, *, level: str = "ALL", channels: int = 0
) -> Census:
    graph, linear = product_graph(tmp_path / "base", WEIGHT), down_linear(WEIGHT)
    folder = tmp_path / "base"
    if plan is not None:
        rewritten(graph, linear, plan, folder := tmp_path / "q", accuracy_level=4)
    x = torch.randn(4, 128).numpy()
    run_graph(folder, {"x": x}, level=level, optimised=tmp_path / "optimised.onnx")
    unit = ExpectedUnit(
        computes="float" if plan is None else COMPUTES[scheme],
        products=(linear.weight.removesuffix(".weight"),),
        floating_channels=channels,
        elements=linear.elements,
        floating_elements=channels * linear.outputs if plan else linear.elements,
    )
    expectation = Expectation(scheme=scheme, units={UNIT: unit})
    return take_census(tmp_path / "optimised.onnx", expectation, "CPUExecutionProvider")


def w8a8(channels: tuple[int, ...] = ()) -> Int8Plan:
    linear = replace(
        int8_weight(WEIGHT, torch.tensor(channels, dtype=torch.int64)),
        input=InputRange(6 / 255, zero_point=128),
    )
    return Int8Plan(lambda: linear, linear.input, channels)


@pytest.mark.parametrize("channels", [(), (1, 5)])
def test_a_qdq_product_is_found_to_run_as_int8(tmp_path: Path, channels: tuple[int, ...]) -> None:
    census = census_of(tmp_path, "w8a8", w8a8(channels), channels=len(channels))
    unit = census.units[UNIT]
    assert (unit.expected, unit.found, unit.fell_back) == ("int8", "int8", False)
    assert list(unit.operators) == ["MatMulIntegerToFloat"]
    assert unit.float_parts == (1 if channels else 0)
    assert census.float_share == len(channels) / 128
    assert census.fallen_back == ()


def test_without_fusions_the_same_product_is_found_to_have_fallen_back(tmp_path: Path) -> None:
    census = census_of(tmp_path, "w8a8", w8a8(), level="BASIC")
    assert (census.units[UNIT].found, census.units[UNIT].operators) == ("float", {"MatMul": 1})
    assert census.fallen_back == (UNIT,)


def test_weight_only_per_channel_is_found_as_what_it_is_fused_into(tmp_path: Path) -> None:
    plan = Int8Plan(lambda: int8_weight(WEIGHT))
    unit = census_of(tmp_path, "w8", plan).units[UNIT]
    assert (unit.found, unit.operators) == ("weights-int8", {"MatMulNBits": 1})


@pytest.mark.parametrize(
    ("scheme", "bits", "found"), [("w8-block", 8, "weights-int8"), ("w4-block", 4, "weights-int4")]
)
def test_products_by_block_are_found_with_their_bits(
    tmp_path: Path, scheme: OnnxScheme, bits: int, found: Computes
) -> None:
    codes = quantize_rtn(WEIGHT, kind=GridKind(bits), group_size=32)
    unit = census_of(tmp_path, scheme, NBitsPlan(lambda: codes, bits, 32)).units[UNIT]
    assert (unit.expected, unit.found) == (found, found)


def test_a_kept_unit_is_to_run_in_floating_point(tmp_path: Path) -> None:
    census = census_of(tmp_path, "w8", None)
    assert (census.units[UNIT].expected, census.units[UNIT].found) == ("float", "float")
    assert census.float_share == 1.0
