"""Asymmetric integer grids: where a group of weights is rounded to."""

from dataclasses import dataclass

import torch
from torch import Tensor

# Smallest positive float16: a group of (almost) zeros still needs a scale that its zeros survive division by.
SMALLEST_SCALE = 2.0**-24


@dataclass(frozen=True)
class Grid:
    """Scale and zero point of every group of a weight.

    Attributes:
        scales: float32 `[out, groups]`, each exactly representable in float16, as it will be stored.
        zero_points: float32 `[out, groups]`, whole numbers from 0 to 2 ** bits − 1.
        bits: Width of a code.
    """

    scales: Tensor
    zero_points: Tensor
    bits: int


def fit_grid(groups: Tensor, bits: int, shrink: float | Tensor = 1.0) -> Grid:
    """The grid that spans each group's range, zero included.

    Args:
        groups: float32 `[out, groups, group_size]`.
        bits: Width of a code.
        shrink: Part of the range to span (below 1 clips the largest weights); a number or `[out, groups]`.
    """
    levels = 2**bits - 1
    top = groups.amax(-1).clamp(min=0) * shrink
    bottom = groups.amin(-1).clamp(max=0) * shrink
    scales = ((top - bottom) / levels).half().float().clamp(min=SMALLEST_SCALE)
    zero_points = torch.round(-bottom / scales).clamp(0, levels)
    return Grid(scales, zero_points, bits)


def encode(groups: Tensor, grid: Grid) -> Tensor:
    """Nearest code of every weight: float32 whole numbers `[out, groups, group_size]`."""
    levels = 2**grid.bits - 1
    codes = torch.round(groups / grid.scales.unsqueeze(-1)) + grid.zero_points.unsqueeze(-1)
    return codes.clamp_(0, levels)


def round_to_grid(groups: Tensor, grid: Grid) -> Tensor:
    """The weights that the nearest codes stand for: float32 `[out, groups, group_size]`."""
    return (encode(groups, grid) - grid.zero_points.unsqueeze(-1)) * grid.scales.unsqueeze(-1)
