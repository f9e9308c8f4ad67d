"""From what an input ranges over to the range that its codes span: MinMax, percentile, MSE, entropy.

Which of them does a unit good is not told by the unit's own error: it is chosen by the effect on the logits
(`quantflow/remedies/`).
"""

import numpy as np
import torch
from torch import Tensor

from quantflow.quantize.int8 import LARGEST_INPUT, SMALLEST_SCALE, InputRange
from quantflow.quantize.search_space import RANGE_SHRINKS, RangeMethod

PERCENTILE = 0.9999
"""Of the values on each side of zero: what articles recommend."""
BINS_PER_LEVEL = 8
"""Bins of the histogram for each code: 2,048 for 8 bits, as in TensorRT's entropy calibration."""


def spanning(low: float, high: float) -> InputRange | None:
    """The range whose codes span the values from low to high, and zero.

    Args:
        low: Least value.
        high: Largest value.

    Returns:
        None where there is nothing to span: a range of zero.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    scale = float(np.float32((high - low) / LARGEST_INPUT))  # as graphs store it
    if scale < SMALLEST_SCALE:
        return None
    return InputRange(scale, min(LARGEST_INPUT, round(-low / scale)))


def remaining(how: InputRange) -> InputRange | None:
    """The range of what rounding to another one's codes leaves: half a step up and down."""
    return spanning(-how.scale / 2, how.scale / 2)


def ends(method: RangeMethod, values: Tensor, low: float, high: float) -> tuple[float, float]:
    """Least and largest value that a method wants to have codes for.

    Args:
        method: The method.
        values: Floating-point, of any shape: a sample of the input.
        low: Its least value over all calibration tokens, at most zero.
        high: Its largest, at least zero.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    if method == "minmax" or not values.numel() or low == high:
        return low, high
    values = values.float().flatten()
    if method == "percentile":
        return max(low, -_quantile(-values)), min(high, _quantile(values))
    error = _square_error if method == "mse" else _divergence
    losses = [error(values, shrink * low, shrink * high) for shrink in RANGE_SHRINKS]
    shrink = RANGE_SHRINKS[losses.index(min(losses))]
    return shrink * low, shrink * high


def _quantile(values: Tensor) -> float:
    """The percentile of the values above zero; 0 where there is none."""
    above = values[values > 0]
    if not above.numel():
        return 0.0
    return float(above.kthvalue(max(1, round(PERCENTILE * above.numel()))).values)


def _square_error(values: Tensor, low: float, high: float) -> float:
    how = spanning(low, high)
    if how is None:
        return float(values.double().square().sum())
    codes = torch.round(values / how.scale).clamp_(-how.zero_point, how.largest - how.zero_point)
    return float(codes.mul_(how.scale).sub_(values).double().square_().sum())


def _divergence(values: Tensor, low: float, high: float) -> float:
    """KL of the clipped values' histogram from the same in as many levels as there are codes.

    Migacz, 8-bit Inference with TensorRT (GTC 2017), with both ends moved alike. Not that KL which the
    project judges by.
    """
    levels = LARGEST_INPUT + 1
    bins = levels * BINS_PER_LEVEL
    reference = torch.histc(values.clamp(low, high), bins, low, high).double()
    inside = torch.histc(values, bins, low, high).double().reshape(levels, BINS_PER_LEVEL)
    if not inside.any():
        return float("inf")
    filled = (inside > 0).double()
    spread = inside.sum(1, keepdim=True) / filled.sum(1, keepdim=True).clamp_(min=1) * filled
    p, q = reference / reference.sum(), (spread / spread.sum()).flatten()
    where = p > 0
    return float((p[where] * (p[where] / q[where].clamp_(min=1e-12)).log()).sum())
