"""SmoothQuant: a scale per input channel that moves what is hard to quantize from the input to the weight.

Xiao et al., 2023, arXiv:2211.10438, equation 4. The input is divided by the scale where it comes from, in a
norm or the linear before; the weight's columns are multiplied by it.
"""

from dataclasses import replace

import torch
from torch import Tensor

from quantflow.calibrate.input_ranges import InputRanges

# Channels quieter than this part of the loudest are scaled as if they were this loud: their own range says
# little, and a scale near zero would blow them up.
QUIETEST = 1e-4


def smoothing_scale(ranges: InputRanges, largest_weight: Tensor, exponent: float) -> Tensor:
    """max|x|^α / max|w|^(1 − α), its geometric mean brought to 1: float32 `[d_in]`.

    All ones where α is 0 or the input was zero throughout.

    Args:
        ranges: Of the input.
        largest_weight: max|w| over the outputs of all linears that read it, `[d_in]`.
        exponent: α: 0 leaves all as it is, 1 gives every input channel the same range.
    """
    loudest = torch.maximum(ranges.high, -ranges.low)
    most = float(loudest.max())
    if not exponent or not most:
        return torch.ones_like(loudest)
    inputs = loudest.clamp(min=QUIETEST * most)
    weights = largest_weight.float().clamp(min=QUIETEST * max(float(largest_weight.max()), 1e-30))
    scale = inputs**exponent / weights ** (1 - exponent)
    return scale / scale.log().mean().exp()


def smoothed(ranges: InputRanges, scale: Tensor) -> InputRanges:
    """Ranges of an input that is divided by a scale `[d_in]`."""
    return replace(
        ranges, low=ranges.low / scale, high=ranges.high / scale, sample=ranges.sample.float() / scale
    )
