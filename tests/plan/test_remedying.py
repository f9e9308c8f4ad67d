"""What remedies for INT8 take, as far as it can be told before anything runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from quantflow.plan.model import find_model
from quantflow.plan.quantizing import quantize_cost
from quantflow.plan.remedying import remedy_cost
from quantflow.plan.shape import ModelShape
from quantflow.plan.text import TextSize
from quantflow.plan.work import Cost
from quantflow.quantize.params import QuantizeParams, RemedyParams, Scheme, int8_scheme
from quantflow.remedies.sizes import TRIAL_TOKENS
from quantflow.source.uri import parse

W8A8 = int8_scheme("w8a8")
PARAMS = RemedyParams(scheme=W8A8, device="cpu", batch_tokens=64)
TEXT = TextSize(
    known_by="counted",
    held_tokens=1000,
    calibration_windows=4,
    calibration_length=32,
    evaluation_windows=4,
    evaluation_tokens=128,
    positions=124,
    selection_tokens=256,
    selection_positions=248,
)


@pytest.fixture(scope="module")
def shape(tiny_llama: Path) -> ModelShape:
    found = find_model(parse(str(tiny_llama), Path("/")), None, None).shape
    assert found is not None
    return found


def products(cost: Cost) -> float:
    assert cost.work is not None
    return sum(cost.work.matmuls.values())


def test_more_selection_text_takes_more_up_to_what_is_used_of_it(shape: ModelShape) -> None:
    def cost(tokens: int) -> Cost:
        return remedy_cost(PARAMS, shape, replace(TEXT, selection_tokens=tokens))

    assert products(cost(512)) > 1.5 * products(cost(256))
    assert products(cost(2 * TRIAL_TOKENS)) == products(cost(TRIAL_TOKENS))


def test_without_selection_text_only_codes_are_made(shape: ModelShape) -> None:
    cost = remedy_cost(PARAMS, shape, replace(TEXT, selection_tokens=0))
    assert products(cost) == 0
    assert cost.disk_bytes == remedy_cost(PARAMS, shape, TEXT).disk_bytes


def test_int8_alone_sums_up_no_gram_matrices(shape: ModelShape) -> None:
    def cost(*schemes: Scheme) -> Cost:
        return quantize_cost(QuantizeParams(candidates=schemes, device="cpu", batch_tokens=64), shape, TEXT)

    awq = Scheme(method="awq", bits=4, group_size=32)
    alone, both = cost(W8A8), cost(W8A8, awq)
    assert products(alone) < 0.7 * products(cost(awq))
    assert products(both) == products(cost(awq))
    assert (alone.host_bytes or 0) < (both.host_bytes or 0)
