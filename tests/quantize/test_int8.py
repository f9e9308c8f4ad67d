"""INT8 values of a linear layer and what they compute."""

import math

import pytest
import torch

from quantflow.errors import QuantizationError
from quantflow.quantize.int8 import (
    InputRange,
    Int8Linear,
    emulate,
    int8_dequantized,
    int8_weight,
)


def test_each_output_has_its_own_scale_and_rounds_to_half_a_step() -> None:
    weight = torch.randn(5, 32, generator=torch.Generator().manual_seed(1)) * torch.tensor(
        [[1e-4], [1], [50], [3], [7]]
    )
    linear = int8_weight(weight)
    assert linear.q.abs().amax(1).tolist() == [127] * 5
    assert bool(((int8_dequantized(linear) - weight).abs() <= linear.scales.unsqueeze(1) * 0.5001).all())


def test_floating_channels_are_exact_and_do_not_widen_the_scales() -> None:
    weight = torch.randn(4, 16, generator=torch.Generator().manual_seed(2))
    weight[:, 3] = 1000.0
    linear = int8_weight(weight, torch.tensor([3]))
    assert float(linear.scales.max()) < 0.1
    assert linear.q[:, 3].tolist() == [0] * 4
    assert torch.equal(int8_dequantized(linear)[:, 3], weight[:, 3])


def test_a_row_of_zeros_stays_zero() -> None:
    assert torch.equal(int8_dequantized(int8_weight(torch.zeros(2, 4))), torch.zeros(2, 4))


def test_weights_that_are_not_finite_are_refused() -> None:
    with pytest.raises(QuantizationError, match="NaN or infinite"):
        int8_weight(torch.tensor([[1.0, math.inf]]))


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_range_of_zero_or_infinity_is_refused(scale: float) -> None:
    with pytest.raises(QuantizationError, match="scale"):
        InputRange(scale=scale, zero_point=0)


def test_a_zero_point_beyond_the_codes_is_refused() -> None:
    InputRange(scale=1.0, zero_point=200)
    with pytest.raises(QuantizationError, match="zero point"):
        InputRange(scale=1.0, zero_point=200, reduced=True)


def test_inputs_are_rounded_half_to_even_and_clipped_as_quantize_linear_does() -> None:
    eye = Int8Linear(
        q=torch.eye(6, dtype=torch.int8),
        scales=torch.ones(6),
        input=InputRange(scale=1.0, zero_point=10, reduced=True),
        floating_channels=torch.empty(0, dtype=torch.int64),
        floating_weight=torch.empty(6, 0),
    )
    inputs = torch.tensor([0.5, 1.5, -0.5, -20.0, 117.4, 300.0])
    assert emulate(eye, inputs).tolist() == [0.0, 2.0, 0.0, -10.0, 117.0, 117.0]


def test_an_outlier_channel_apart_is_computed_from_the_unrounded_input() -> None:
    weight = torch.randn(8, 16, generator=torch.Generator().manual_seed(3))
    inputs = torch.randn(32, 16, generator=torch.Generator().manual_seed(4))
    inputs[:, 5] *= 3000
    how = InputRange(scale=8 / 255, zero_point=128)
    whole, split = int8_weight(weight), int8_weight(weight, torch.tensor([5]))
    exact = inputs @ weight.T
    for linear, most in ((split, 0.3), (whole, math.inf)):
        quantized = Int8Linear(linear.q, linear.scales, how, linear.floating_channels, linear.floating_weight)
        assert float((emulate(quantized, inputs) - exact).abs().max()) < most
        if linear is whole:
            assert float((emulate(quantized, inputs) - exact).abs().max()) > 100


def test_parts_that_do_not_fit_each_other_are_a_mistake_of_the_code() -> None:
    good = int8_weight(torch.randn(4, 8))
    with pytest.raises(ValueError, match="do not fit"):
        Int8Linear(good.q, good.scales[:3], None, good.floating_channels, good.floating_weight)
    with pytest.raises(ValueError, match="are"):
        Int8Linear(good.q.float(), good.scales, None, good.floating_channels, good.floating_weight)


def test_what_rounding_leaves_is_rounded_in_its_turn() -> None:
    x = torch.linspace(-3, 9, 1001)
    how = InputRange(scale=12 / 255, zero_point=64)
    left = InputRange(scale=how.scale / 255, zero_point=128)
    eye = Int8Linear(
        torch.eye(1, dtype=torch.int8), torch.ones(1), how, torch.empty(0).long(), torch.empty(1, 0), left
    )
    inside = (x >= how.lowest_value) & (x <= how.highest_value)
    found = emulate(eye, x.unsqueeze(-1)).squeeze(-1)
    assert ((found - x).abs()[inside] <= left.scale).all()


def test_there_is_no_remainder_of_an_input_that_is_not_rounded() -> None:
    with pytest.raises(ValueError, match="no remainder"):
        Int8Linear(
            torch.eye(1, dtype=torch.int8),
            torch.ones(1),
            None,
            torch.empty(0).long(),
            torch.empty(1, 0),
            InputRange(scale=0.1, zero_point=128),
        )
