"""INT8 linear layers, weights per channel and inputs per tensor: their values, and what they compute."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from quantflow.errors import QuantizationError

LARGEST_CODE = 127
"""Of a weight: −128 is left out, so that the codes lie evenly around zero."""
LARGEST_REDUCED_CODE = 64
"""Of a weight that is reduced: twice 255 · 64 fits the 16 bits in which processors without VNNI add up two
products of unsigned and signed 8 bits, twice 255 · 127 does not."""
LARGEST_INPUT, LARGEST_REDUCED_INPUT = 255, 127
"""Largest code of an input, and of one that is reduced: twice 127 · 127 fits the 16 bits in which processors
without VNNI add up two products of unsigned and signed 8 bits, twice 255 · 127 does not."""
# Smallest normal float32: below it a scale has lost digits.
SMALLEST_SCALE = 2.0**-126


@dataclass(frozen=True)
class InputRange:
    """How the input of a linear layer is quantized: uint8, one scale and zero point for the tensor.

    x is taken as (clip(round(x / scale) + zero_point, 0, largest) − zero_point) · scale.

    Attributes:
        scale: Step between two codes, finite and above zero.
        zero_point: Code of zero, 0 to `largest`.
        bits: Width of a code.
        reduced: Whether only 7 of the bits are used, see `LARGEST_REDUCED_INPUT`.

    Raises:
        QuantizationError: The scale is zero, infinite or no number, or the zero point out of range.
    """

    scale: float
    zero_point: int
    bits: Literal[8] = 8
    reduced: bool = False

    def __post_init__(self) -> None:
        """Refuse what no graph can hold: a range of zero or infinity comes out as such a scale."""
        if not SMALLEST_SCALE <= self.scale < float("inf"):
            raise QuantizationError(
                f"an input's range gives the scale {self.scale:g}: inputs are all the same, or not finite",
                hint="Look at the calibration text, and at the model: its activations may overflow.",
            )
        if not 0 <= self.zero_point <= self.largest:
            raise QuantizationError(
                f"an input has the zero point {self.zero_point}; it has to be within 0 and {self.largest}",
            )

    @property
    def largest(self) -> int:
        """The largest code."""
        return LARGEST_REDUCED_INPUT if self.reduced else LARGEST_INPUT

    @property
    def lowest_value(self) -> float:
        """What code 0 stands for."""
        return -self.zero_point * self.scale

    @property
    def highest_value(self) -> float:
        """What the largest code stands for."""
        return (self.largest - self.zero_point) * self.scale


@dataclass(frozen=True)
class Int8Linear:
    """One linear layer in INT8, a few of its input channels apart in floating point.

    Attributes:
        q: int8 `[out, in]`, zero in the columns of floating channels.
        scales: float32 `[out]`, one for each output; W ≈ q · scales.
        input: How its input is quantized; None where only the weight is.
        floating_channels: int64 `[k]`, ascending: input channels that are computed in floating point. They do
            not count for the input's range.
        floating_weight: float32 `[out, k]`, their columns of W.
        remainder: How what rounding leaves of the input is quantized in its turn, for a second product with
            the same weight; None for one product.

    Raises:
        ValueError: Dtypes or shapes are not these.
    """

    q: Tensor
    scales: Tensor
    input: InputRange | None
    floating_channels: Tensor
    floating_weight: Tensor
    remainder: InputRange | None = None

    def __post_init__(self) -> None:
        """Check dtypes and shapes."""
        outputs, channels = len(self.q), len(self.floating_channels)
        shapes = (self.scales.shape, self.floating_weight.shape)
        if self.q.ndim != 2 or shapes != ((outputs,), (outputs, channels)):
            raise ValueError(f"scales and floating weight {shapes} do not fit codes {tuple(self.q.shape)}")
        dtypes = (self.q.dtype, self.scales.dtype, self.floating_channels.dtype, self.floating_weight.dtype)
        if self.remainder is not None and self.input is None:
            raise ValueError("there is no remainder of an input that is not rounded")
        if dtypes != (torch.int8, torch.float32, torch.int64, torch.float32):
            raise ValueError(f"codes, scales, floating channels and their weight are {dtypes}")


def int8_weight(
    weight: Tensor, floating_channels: Tensor | None = None, largest_code: int = LARGEST_CODE
) -> Int8Linear:
    """Round a weight to the nearest of the codes that span each output's range, inputs left as they are.

    Args:
        weight: Floating-point `[out, in]`.
        floating_channels: int64 `[k]`, ascending: input channels to leave out; None for none.
        largest_code: `LARGEST_CODE`, or `LARGEST_REDUCED_CODE`.

    Raises:
        QuantizationError: The weight is not finite.
    """
    channels = torch.empty(0, dtype=torch.int64) if floating_channels is None else floating_channels
    weight = weight.float()
    floating = weight[:, channels].contiguous()
    rest = weight.index_fill(1, channels, 0.0)
    largest = rest.abs().amax(dim=1)
    if not bool(torch.isfinite(largest).all()):
        raise QuantizationError("holds NaN or infinite weights")
    scales = (largest / largest_code).clamp_(min=SMALLEST_SCALE)
    codes = torch.round(rest / scales.unsqueeze(1)).clamp_(-largest_code, largest_code)
    return Int8Linear(codes.to(torch.int8), scales, None, channels, floating)


def weights_only(linear: Int8Linear) -> Int8Linear:
    """The layer with the same codes and its input in floating point, so that one product does."""
    return replace(linear, input=None, remainder=None)


def int8_dequantized(linear: Int8Linear) -> Tensor:
    """The weight that codes and floating channels stand for, float32 `[out, in]`."""
    weight = linear.q.float().mul_(linear.scales.unsqueeze(1))
    weight[:, linear.floating_channels] = linear.floating_weight
    return weight


def rounded_input(inputs: Tensor, how: InputRange) -> Tensor:
    """Inputs as their codes stand for them, float32 of the same shape."""
    codes = torch.round(inputs.float() / how.scale).add_(how.zero_point).clamp_(0, how.largest)
    return codes.sub_(how.zero_point).mul_(how.scale)


def emulate(linear: Int8Linear, inputs: Tensor) -> Tensor:
    """What the layer computes, without its bias: the arithmetic of its QDQ graph in float32.

    Args:
        linear: The layer.
        inputs: Floating-point `[..., in]`.

    Returns:
        float32 `[..., out]`.
    """
    inputs = inputs.float()
    rounded = inputs if linear.input is None else rounded_input(inputs, linear.input)
    if linear.remainder is not None:
        rounded = rounded + rounded_input(inputs - rounded, linear.remainder)
    outputs = rounded @ (linear.q.float() * linear.scales.unsqueeze(1)).T
    if len(linear.floating_channels):
        outputs = outputs + inputs[..., linear.floating_channels] @ linear.floating_weight.T
    return outputs
