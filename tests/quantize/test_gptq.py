import math

import pytest
import torch
from torch import Tensor

from quantflow.quantize.block import diagonal_blocks
from quantflow.quantize.codes import dequantize
from quantflow.quantize.factor import factorize
from quantflow.quantize.gptq import quantize_gptq
from quantflow.quantize.grid import GridKind
from quantflow.quantize.rtn import quantize_rtn
from tests.quantize.gptq_reference import reference_gptq

DAMPING = 0.01


def problem(outputs: int = 24, inputs: int = 128, tokens: int = 300, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A weight, and the Gram matrix of inputs that hang together and of which a few are loud; float64."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(inputs, inputs, generator=generator, dtype=torch.float64)
    x = torch.randn(tokens, inputs, generator=generator, dtype=torch.float64) @ mixing / math.sqrt(inputs)
    x[:, ::37] *= 20
    return torch.randn(outputs, inputs, generator=generator, dtype=torch.float64), x.T @ x


def loss(weight: Tensor, rounded: Tensor, gram: Tensor) -> float:
    delta = rounded.double() - weight
    return float(((delta @ gram) * delta).sum())


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_codes_are_those_of_the_dense_reference_at_every_width(bits: int, symmetric: bool) -> None:
    weight, gram = problem()
    kind = GridKind(bits, symmetric, lowest_zero_point=1)
    expected = reference_gptq(weight, gram, kind=kind, group_size=32, damping=DAMPING)
    result = quantize_gptq(weight, factorize(gram.clone(), damping=DAMPING), kind=kind, group_size=32)
    assert torch.equal(dequantize(result), expected.float())


@pytest.mark.parametrize("group_size", [32, 64, 128, 384])
@pytest.mark.parametrize("by_activation", [False, True])
@pytest.mark.parametrize("static_groups", [False, True])
def test_codes_are_those_of_the_dense_reference_for_every_kind_of_group(
    group_size: int, by_activation: bool, static_groups: bool
) -> None:
    weight, gram = problem(8, 384)
    kind = GridKind(4, symmetric=False, lowest_zero_point=1)
    expected = reference_gptq(
        weight,
        gram,
        kind=kind,
        group_size=group_size,
        damping=DAMPING,
        by_activation=by_activation,
        static_groups=static_groups,
    )
    factor = factorize(gram.clone(), damping=DAMPING, by_activation=by_activation)
    result = quantize_gptq(weight, factor, kind=kind, group_size=group_size, static_groups=static_groups)
    assert torch.equal(dequantize(result), expected.float())


def test_float32_rounds_as_float64_does_but_for_ties() -> None:
    weight, gram = problem(64, 512, 2000)
    kind = GridKind(4, symmetric=True)
    exact = quantize_gptq(weight, factorize(gram.clone(), damping=DAMPING), kind=kind, group_size=64)
    single = quantize_gptq(weight.float(), factorize(gram.float(), damping=DAMPING), kind=kind, group_size=64)
    # One code that falls the other way moves what comes after it.
    assert (exact.q == single.q).float().mean() > 0.98
    losses = [loss(weight, dequantize(codes), gram) for codes in (exact, single)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.parametrize("by_activation", [False, True])
def test_the_error_of_the_outputs_is_far_less_than_by_rounding_to_nearest(by_activation: bool) -> None:
    weight, gram = problem()
    kind = GridKind(4, symmetric=True)
    factor = factorize(gram.clone(), damping=DAMPING, by_activation=by_activation)
    gptq = dequantize(quantize_gptq(weight, factor, kind=kind, group_size=32))
    nearest = dequantize(quantize_rtn(weight, kind=kind, group_size=32))
    assert loss(weight, gptq, gram) < 0.5 * loss(weight, nearest, gram)


@pytest.mark.parametrize(("group_size", "static_groups"), [(32, False), (32, True), (128, False)])
@pytest.mark.parametrize("bits", [2, 4])
def test_searched_scales_lower_the_error_further(group_size: int, static_groups: bool, bits: int) -> None:
    ratios = []
    for seed in range(5):
        weight, gram = problem(seed=seed)
        factor = factorize(gram.clone(), damping=DAMPING)
        weighting = diagonal_blocks(gram, group_size)
        losses = [
            loss(
                weight,
                dequantize(
                    quantize_gptq(
                        weight,
                        factor,
                        kind=GridKind(bits, lowest_zero_point=1),
                        group_size=group_size,
                        static_groups=static_groups,
                        search=search,
                        weighting=weighting,
                    )
                ),
                gram,
            )
            for search in (False, True)
        ]
        ratios.append(losses[1] / losses[0])
    assert sum(ratios) / len(ratios) < 0.95


def test_groups_by_activation_are_named_by_input() -> None:
    weight, gram = problem()
    factor = factorize(gram.clone(), damping=DAMPING, by_activation=True)
    codes = quantize_gptq(weight, factor, kind=GridKind(4, symmetric=True), group_size=32)
    assert codes.group_index is not None
    order = torch.argsort(gram.diagonal(), descending=True, stable=True)
    assert torch.equal(codes.group_index[order].long(), torch.arange(128) // 32)
    static = quantize_gptq(
        weight, factor, kind=GridKind(4, symmetric=True), group_size=32, static_groups=True
    )
    assert static.group_index is None


def test_an_input_that_was_never_anything_is_rounded_to_nearest() -> None:
    weight, gram = problem()
    gram[7], gram[:, 7] = 0, 0
    kind = GridKind(4, symmetric=True)
    codes = quantize_gptq(
        weight, factorize(gram, damping=DAMPING), kind=kind, group_size=32, static_groups=True
    )
    nearest = quantize_rtn(weight, kind=kind, group_size=32)
    assert torch.equal(codes.q[:, 7], nearest.q[:, 7])
    nothing = quantize_gptq(
        weight, factorize(torch.zeros(128, 128).double(), damping=DAMPING), kind=kind, group_size=32
    )
    assert torch.equal(nothing.q, nearest.q)
