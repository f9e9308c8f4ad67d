"""What can be done for a unit in INT8, and its values once it is done."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quantflow.calibrate.input_ranges import InputRanges
from quantflow.quantize.int8 import (
    LARGEST_CODE,
    LARGEST_REDUCED_CODE,
    InputRange,
    Int8Linear,
    int8_weight,
    rounded_input,
)
from quantflow.quantize.params import Scheme
from quantflow.quantize.ranges import ends, remaining, spanning
from quantflow.quantize.search_space import RangeMethod
from quantflow.quantize.smoothing import smoothed, smoothing_scale
from quantflow.remedies.sizes import CHANNELS, EXPONENTS, MOST_APART, RANGE_VALUES, TWICE_COST, TWICE_HEADROOM


@dataclass(frozen=True)
class Option:
    """One way to quantize a unit.

    Attributes:
        exponent: α of the smoothing of its input.
        channels: Input channels apart in floating point: those with the largest range, once smoothed.
        range: How the range of the others is found.
        twice: Whether what rounding leaves of the input is quantized in its turn and multiplied as well: 16
            bits of the input, in two products of 8.
    """

    exponent: float = 0.0
    channels: int = 0
    range: RangeMethod = "minmax"
    twice: bool = False

    def cost(self, outputs: int, inputs: int) -> float:
        """What it takes of the budget, in weights that are multiplied in floating point."""
        return self.channels * outputs + (TWICE_COST * outputs * inputs if self.twice else 0.0)


@dataclass(frozen=True)
class UnitProblem:
    """A unit, what its input is like, and how it may be quantized.

    Attributes:
        unit: Its full name.
        weights: Full name of a linear → its lossless weight `[out, d_in]`.
        ranges: Of its input over the calibration tokens.
        scheme: INT8 with or without its input.
        reduced: Whether weights use no more codes than processors without VNNI can add up.
        foldable: Whether there is a place that a scale of its input can be folded into.
    """

    unit: str
    weights: Mapping[str, Tensor]
    ranges: InputRanges
    scheme: Scheme
    reduced: bool
    foldable: bool

    @property
    def largest_code(self) -> int:
        """Of its weights."""
        return LARGEST_REDUCED_CODE if self.reduced else LARGEST_CODE

    @property
    def inputs(self) -> int:
        """Input channels."""
        return len(self.ranges.low)

    @property
    def outputs(self) -> int:
        """Outputs of all its linears."""
        return sum(map(len, self.weights.values()))

    @property
    def exponents(self) -> tuple[float, ...]:
        """Those of `EXPONENTS` that can be folded."""
        return EXPONENTS if self.foldable else (0.0,)

    @property
    def channel_counts(self) -> tuple[int, ...]:
        """Those of `CHANNELS` that the unit has enough input channels for."""
        return tuple(count for count in CHANNELS if count <= MOST_APART * self.inputs)

    def scale(self, exponent: float) -> Tensor:
        """The smoothing scale of an exponent, `[d_in]`."""
        largest = torch.stack([w.abs().amax(0).float() for w in self.weights.values()]).amax(0)
        return smoothing_scale(self.ranges, largest.cpu(), exponent)


def loudest_first(problem: UnitProblem, ranges: InputRanges) -> Tensor:
    """Input channels in the order in which they are taken apart, int64 `[d_in]`.

    With inputs in INT8 those whose range is the widest; else those with the most energy, as what a channel's
    weight is rounded by counts for that much.

    Args:
        problem: The unit.
        ranges: Of its input, smoothed.
    """
    loud = (
        torch.maximum(ranges.high, -ranges.low)
        if problem.scheme.method == "w8a8"
        else ranges.sample.float().square().mean(0)
    )
    return torch.argsort(loud, descending=True, stable=True)


@dataclass(frozen=True)
class InputSteps:
    """How a unit's input is rounded.

    Attributes:
        first: Its range; None where it stays in floating point.
        second: The range of what that leaves; None where it is not rounded in its turn.
    """

    first: InputRange | None
    second: InputRange | None = None

    def rounded(self, inputs: Tensor) -> Tensor:
        """Inputs as their codes stand for them, float32 of the same shape."""
        if self.first is None:
            return inputs
        rounded = rounded_input(inputs, self.first)
        return rounded if self.second is None else rounded + rounded_input(inputs - rounded, self.second)


def input_steps(
    problem: UnitProblem, ranges: InputRanges, rest: Tensor, method: RangeMethod, *, twice: bool
) -> InputSteps:
    """How a unit's input without the channels apart is rounded.

    Args:
        problem: The unit.
        ranges: Of its input, smoothed.
        rest: Channels that are not apart.
        method: How the range is found.
        twice: Whether in two steps.
    """
    if problem.scheme.method != "w8a8":
        return InputSteps(None)
    low, high = float(ranges.low[rest].min()), float(ranges.high[rest].max())
    values = torch.empty(0)
    if method != "minmax":
        values = ranges.sample[:, rest].float().flatten()
        values = values[:: max(1, len(values) // RANGE_VALUES)]
    low, high = ends(method, values, low, high)
    if not twice:
        return InputSteps(spanning(low, high))
    first = spanning(TWICE_HEADROOM * low, TWICE_HEADROOM * high)
    return InputSteps(first, None if first is None else remaining(first))


@dataclass(frozen=True)
class UnitValues:
    """A unit in INT8.

    Attributes:
        linears: Full name → values, for the smoothed input; rows are not folded.
        scale: What the input is divided by, `[d_in]`; None for nothing.
    """

    linears: Mapping[str, Int8Linear]
    scale: Tensor | None


def apply(problem: UnitProblem, option: Option) -> UnitValues:
    """Quantize a unit as an option says.

    Raises:
        QuantizationError: A weight is not finite.
    """
    scale = problem.scale(option.exponent)
    ranges = smoothed(problem.ranges, scale)
    order = loudest_first(problem, ranges)
    apart, rest = order[: option.channels].sort().values, order[option.channels :]
    steps = input_steps(problem, ranges, rest, option.range, twice=option.twice)
    on = {name: scale.to(weight.device) for name, weight in problem.weights.items()}
    linears = {
        name: replace(
            int8_weight(weight.float() * on[name], apart.to(weight.device), problem.largest_code),
            input=steps.first,
            remainder=steps.second,
        )
        for name, weight in problem.weights.items()
    }
    return UnitValues(linears, scale if option.exponent else None)
