import math

import pytest
import torch
from torch import Tensor

from quantflow.errors import QuantizationError
from quantflow.quantize.codes import dequantize
from quantflow.quantize.factor import PANEL, factorize
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
    assert torch.equal(dequantize(result.codes), expected.float())


@pytest.mark.parametrize("group_size", [32, 64, 128, 384])
@pytest.mark.parametrize("by_activation", [False, True])
@pytest.mark.parametrize("static_groups", [False, True])
def test_codes_are_those_of_the_dense_reference_for_every_kind_of_group(
    group_size: int, by_activation: bool, static_groups: bool
) -> None:
    weight, gram = problem(8, 384)
    kind = GridKind(4, symmetric=False, lowest_zero_point=1)
    settings = {"group_size": group_size, "static_groups": static_groups}
    expected = reference_gptq(weight, gram, kind=kind, damping=DAMPING, by_activation=by_activation, **settings)
    factor = factorize(gram.clone(), damping=DAMPING, by_activation=by_activation)
    result = quantize_gptq(weight, factor, kind=kind, **settings)
    assert torch.equal(dequantize(result.codes), expected.float())
