"""Activation-aware weight quantization (Lin et al., 2023, arXiv:2306.00978) from Gram matrices.

A scale per input channel moves the rounding error away from the channels that carry large activations; its
inverse is folded into the norm or linear before. Both searches minimise the error of the unit's output on the
calibration tokens, Σ‖ΔW·x‖² = tr(ΔW·H·ΔWᵀ) with H = Σ x·xᵀ, without another pass over the tokens.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from quantflow.quantize.grid import Grid, encode, fit_grid, round_to_grid
from quantflow.quantize.search_space import COARSE_EXPONENTS, FINE_STEPS, SAMPLED_ROWS, SHRINKS

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
    weight: Tensor, gram: Tensor, mean_abs: Tensor, *, bits: int, group_size: int
) -> ScaleChoice:
    """Find the channel scale of a unit.

    Args:
        weight: float32 `[out, d_in]`, the unit's linears stacked.
        gram: float32 `[d_in, d_in]`, Σ x·xᵀ of the unit's input.
        mean_abs: float32 `[d_in]`, mean |x| of the unit's input.
        bits: Width of a code.
        group_size: Input channels that share a scale.
    """
    rows = weight[:: math.ceil(weight.shape[0] / SAMPLED_ROWS)]
    losses: dict[float, float] = {}
    for exponent in COARSE_EXPONENTS:
        losses[exponent] = _scaled_loss(rows, gram, channel_scale(mean_abs, exponent), bits, group_size)
    best = min(losses, key=losses.__getitem__)
    for step in FINE_STEPS:
        exponent = round(best + step, 2)
        if 0 < exponent < 1 and exponent not in losses:
            losses[exponent] = _scaled_loss(rows, gram, channel_scale(mean_abs, exponent), bits, group_size)
    best = min(losses, key=losses.__getitem__)
    return ScaleChoice(channel_scale(mean_abs, best), best, losses[best] / max(losses[0.0], 1e-30))


def channel_scale(mean_abs: Tensor, exponent: float) -> Tensor:
    """|x|^α, normalised so that its largest and smallest entries are each other's inverse, `[d_in]`."""
    scale = mean_abs.clamp(min=QUIETEST * float(mean_abs.mean())) ** exponent
    return scale / (scale.max() * scale.min()).sqrt()


def search_grid(weight: Tensor, gram: Tensor, *, bits: int, group_size: int, clip: bool = True) -> Grid:
    """Find for every group the part of its range to span.

    The error is taken within the group, through the group's diagonal block of the Gram matrix.

    Args:
        weight: float32 `[out, d_in]`, channel scales multiplied in.
        gram: float32 `[d_in, d_in]` of the input with the channel scales divided out.
        bits: Width of a code.
        group_size: Input channels that share a scale.
        clip: False to span the whole range.
    """
    groups = weight.reshape(weight.shape[0], -1, group_size)
    if not clip:
        return fit_grid(groups, bits)
    blocks = torch.stack(
        [gram[i : i + group_size, i : i + group_size] for i in range(0, gram.shape[0], group_size)]
    )
    best = torch.ones(groups.shape[:2], device=weight.device)
    least = torch.full_like(best, torch.inf)
    for shrink in SHRINKS:
        error = (round_to_grid(groups, fit_grid(groups, bits, shrink)) - groups).transpose(0, 1)
        loss = ((error @ blocks) * error).sum(-1).transpose(0, 1)
        better = loss < least
        least = torch.where(better, loss, least)
        best = torch.where(better, shrink, best)
    return fit_grid(groups, bits, best)


def encode_linear(weight: Tensor, grid: Grid) -> Tensor:
    """Codes of a weight on a grid: uint8 `[out, d_in]`."""
    groups = weight.reshape(*grid.scales.shape, -1)
    return encode(groups, grid).to(torch.uint8).reshape(weight.shape)


def _scaled_loss(weight: Tensor, gram: Tensor, scale: Tensor, bits: int, group_size: int) -> float:
    """tr(ΔW·H·ΔWᵀ) of rounding to nearest with a channel scale."""
    groups = (weight * scale).reshape(weight.shape[0], -1, group_size)
    rounded = round_to_grid(groups, fit_grid(groups, bits)).reshape(weight.shape)
    error = rounded / scale - weight
    # By rows first: a sum over everything is cut up by the number of threads, and ends in other last bits.
    return float(((error @ gram) * error).sum(-1).sum())
