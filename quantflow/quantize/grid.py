"""Integer grids: where a group of weights is rounded to."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quantflow.errors import QuantizationError

# Smallest positive float16: a group of (almost) zeros still needs a scale that its zeros survive division by.
SMALLEST_SCALE = 2.0**-24
# Weights whose grids are searched together: what that takes besides stays within a processor's cache.
SEARCHED_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class GridKind:
    """What the grids of a scheme have in common.

    Attributes:
        bits: Width of a code: 2, 3, 4 or 8.
        symmetric: Whether every zero point is 2 ** (bits − 1), the middle of the codes.
        lowest_zero_point: Least zero point where they are chosen: 1 for AutoGPTQ's layout, which stores them
            minus one.
    """

    bits: int
    symmetric: bool = False
    lowest_zero_point: int = 0

    @property
    def levels(self) -> int:
        """The largest code."""
        return int(2**self.bits - 1)


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


def fit_grid(groups: Tensor, kind: GridKind, shrink: float | Tensor = 1.0) -> Grid:
    """The grid that spans each group's range (MinMax), zero included.

    Args:
        groups: Floating-point `[out, groups, group_size]`.
        kind: Width, symmetry and range of zero points.
        shrink: Part of the range to span (below 1 clips the largest weights); a number or `[out, groups]`.
    """
    return _spanning(*_range(groups), kind, shrink)


def encode(groups: Tensor, grid: Grid) -> Tensor:
    """Nearest code of every weight: whole numbers `[out, groups, group_size]` in the weights' dtype."""
    levels = 2**grid.bits - 1
    codes = torch.round(groups / grid.scales.unsqueeze(-1)) + grid.zero_points.unsqueeze(-1)
    return codes.clamp_(0, levels)


def round_to_grid(groups: Tensor, grid: Grid) -> Tensor:
    """The weights that the nearest codes stand for: `[out, groups, group_size]`."""
    return (encode(groups, grid) - grid.zero_points.unsqueeze(-1)) * grid.scales.unsqueeze(-1)


def search_grid(
    groups: Tensor, kind: GridKind, shrinks: tuple[float, ...], weighting: Tensor | None = None
) -> Grid:
    """The grid among those that span parts of each group's range whose rounding error is the least.

    Args:
        groups: Floating-point `[out, groups, group_size]`.
        kind: Width, symmetry and range of zero points.
        shrinks: The parts to try.
        weighting: `[groups, group_size, group_size]` M: the error of a group is Δw·M·Δwᵀ; or `[groups,
            group_size]`, M's diagonal where it has nothing else. None for ‖Δw‖².
    """
    rows = max(1, SEARCHED_AT_ONCE // (groups.shape[1] * groups.shape[2]))
    parts = [groups[begin : begin + rows] for begin in range(0, len(groups), rows)]
    grids = [_search(part, kind, shrinks, weighting) for part in parts]
    scales = torch.cat([grid.scales for grid in grids])
    return Grid(scales, torch.cat([grid.zero_points for grid in grids]), kind.bits)


def _search(groups: Tensor, kind: GridKind, shrinks: tuple[float, ...], weighting: Tensor | None) -> Grid:
    bottom, top = _range(groups)
    best = torch.ones_like(bottom)
    least = torch.full_like(best, torch.inf)
    for shrink in shrinks:
        grid = _spanning(bottom, top, kind, shrink)
        low, scales = -grid.zero_points.unsqueeze(-1), grid.scales.unsqueeze(-1)
        error = (groups / scales).round_().clamp_(low, low + kind.levels).mul_(scales).sub_(groups)
        if weighting is None:
            loss = error.square_().sum(-1)
        elif weighting.dim() == 2:
            loss = error.square_().mul_(weighting).sum(-1)
        else:
            error = error.transpose(0, 1)
            loss = (error @ weighting).mul_(error).sum(-1).transpose(0, 1)
        better = loss < least
        least = torch.where(better, loss, least)
        best = torch.where(better, shrink, best)
    return _spanning(bottom, top, kind, best)


def _range(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Lowest and highest weight of every group, zero included, `[out, groups]` each."""
    return groups.amin(-1).clamp_(max=0), groups.amax(-1).clamp_(min=0)


def _spanning(bottom: Tensor, top: Tensor, kind: GridKind, shrink: float | Tensor) -> Grid:
    if kind.symmetric:
        # Codes reach half a step further down than up; AutoGPTQ divides the range evenly among them too.
        scales = _stored(2 * torch.maximum(-bottom, top) * shrink / kind.levels)
        return Grid(scales, torch.full_like(scales, 2 ** (kind.bits - 1)), kind.bits)
    scales = _stored((top - bottom) * shrink / kind.levels)
    zero_points = torch.round(-bottom * shrink / scales).clamp_(0, kind.levels)
    low = kind.lowest_zero_point
    if low:
        # With its zero point raised, the grid has to reach as far up with fewer steps.
        raised = torch.maximum(scales, _stored(top * shrink / (kind.levels - low)))
        scales = torch.where(zero_points < low, raised, scales)
        zero_points = zero_points.clamp(min=low)
    return Grid(scales, zero_points, kind.bits)


def _stored(scales: Tensor) -> Tensor:
    """Scales as float16 will hold them, in the dtype they came in.

    Raises:
        QuantizationError: One is beyond float16.
    """
    half = scales.half()
    if not bool(torch.isfinite(half).all()):
        raise QuantizationError(
            f"a scale of {float(scales.max()):g} does not fit float16, which scales are stored in",
            hint="the source model holds weights far beyond what quantized formats can; check it",
        )
    return half.to(scales.dtype).clamp(min=SMALLEST_SCALE)
