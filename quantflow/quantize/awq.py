"""Activation-aware weight quantization (Lin et al., 2023, arXiv:2306.00978) from statistics of the inputs.

A scale per input channel moves the rounding error away from the channels that carry large activations; its
inverse is folded into the norm or linear before. The search minimises the error of the unit's output on the
calibration tokens, without another pass over them: from the Gram matrix, Σ‖ΔW·x‖² = tr(ΔW·H·ΔWᵀ) with
H = Σ x·xᵀ, or over a sample of tokens, whichever is less work.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quantflow.calibrate.statistics import InputStatistics
from quantflow.quantize.grid import GridKind, fit_grid, round_to_grid
from quantflow.quantize.search_space import COARSE_EXPONENTS, FINE_STEPS, SAMPLED_ROWS

# Channels quieter than this part of the mean are scaled as if they were this loud.
QUIETEST = 1e-4


@dataclass(frozen=True)
class ScaleChoice:
    """The outcome of a unit's scale search.

    Attributes:
        scale: float32 `[d_in]`, multiplied into the weight's columns and divided out of its input.
        exponent: α of |x|^α; 0 leaves the weight as it is.
        loss: Error of the unit's output with this scale, as a fraction of the error without any.
    """

    scale: Tensor
    exponent: float
    loss: float


def search_scale(
    weights: Sequence[Tensor], statistics: InputStatistics, *, kind: GridKind, group_size: int
) -> ScaleChoice:
    """Find the channel scale of a unit.

    Args:
        weights: float32 `[out, d_in]` each, the unit's linears.
        statistics: Of the unit's input.
        kind: Of the grids.
        group_size: Input channels that share a scale.
    """
    rows = sampled_rows(weights)
    losses: dict[float, float] = {}

    def try_out(exponent: float) -> None:
        scale = channel_scale(statistics.mean_abs, exponent)
        losses[exponent] = scaled_loss(rows, statistics, scale, kind, group_size)

    for exponent in COARSE_EXPONENTS:
        try_out(exponent)
    best = min(losses, key=losses.__getitem__)
    for step in FINE_STEPS:
        exponent = round(best + step, 2)
        if 0 < exponent < 1 and exponent not in losses:
            try_out(exponent)
    best = min(losses, key=losses.__getitem__)
    scale = channel_scale(statistics.mean_abs, best)
    return ScaleChoice(scale, best, losses[best] / max(losses[0.0], 1e-30))


def channel_scale(mean_abs: Tensor, exponent: float) -> Tensor:
    """|x|^α, normalised so that its largest and smallest entries are each other's inverse, `[d_in]`.

    All ones where the input was zero throughout.
    """
    mean = float(mean_abs.mean())
    if not mean:
        return torch.ones_like(mean_abs)
    scale = mean_abs.clamp(min=QUIETEST * mean) ** exponent
    return scale / (scale.max() * scale.min()).sqrt()


def sampled_rows(weights: Sequence[Tensor]) -> Tensor:
    """Evenly spaced rows of a unit's stacked linears, at most `SAMPLED_ROWS`: `[rows, d_in]`."""
    step = math.ceil(sum(map(len, weights)) / SAMPLED_ROWS)
    sampled, skipped = [], 0
    for weight in weights:
        rows = weight[skipped::step]
        sampled.append(rows)
        skipped += step * len(rows) - len(weight)
    return torch.cat(sampled)


def scaled_loss(
    weight: Tensor, statistics: InputStatistics, scale: Tensor, kind: GridKind, group_size: int
) -> float:
    """Σ‖ΔW·x‖² of rounding `weight`, `[rows, d_in]`, to nearest with a channel scale.

    Over the sampled tokens if there are, else from the Gram matrix and over all.
    """
    scaled = weight * scale
    groups = scaled.reshape(len(weight), -1, group_size)
    rounded = round_to_grid(groups, fit_grid(groups, kind)).reshape(weight.shape)
    error = rounded.div_(scale).sub_(weight)
    if statistics.sample is not None:
        by_row = (error @ statistics.sample.T).square_().sum(-1)
    else:
        by_row = (error @ statistics.gram).mul_(error).sum(-1)
    # By rows first: a sum over everything is cut up by the number of threads, and ends in other last bits.
    return float(by_row.sum())
