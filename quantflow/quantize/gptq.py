"""GPTQ (Frantar et al., 2022, arXiv:2210.17323): rounding column by column, each making up for those before.

Written with the factor L of `factor.py` instead of that of the inverse. Columns are numbered as L has them
and rounded from the last to the first. With Δ = W − Ŵ of the columns rounded already, column j is rounded at

    w_j + (Σ_{k>j} Δ_k·L_kj) / L_jj,

which is what GPTQ's updates have made of it by then, and a group of columns B that is next stands at
w_B + (Δ·L_B)·L_BB⁻¹ as a whole. What rounding B adds to the loss tr(Δ·H·Δᵀ), if the columns after
it make up for all they can, is ‖ΔB·L_BB‖² with ΔB counted from there.
"""

import torch
from torch import Tensor

from quantflow.quantize.codes import LinearCodes
from quantflow.quantize.factor import Factor
from quantflow.quantize.grid import Grid, GridKind, fit_grid, search_grid
from quantflow.quantize.search_space import SHRINKS
from quantflow.quantize.sizes import BLOCK


def quantize_gptq(
    weight: Tensor,
    factor: Factor,
    *,
    kind: GridKind,
    group_size: int,
    static_groups: bool = False,
    search: bool = False,
    weighting: Tensor | None = None,
) -> LinearCodes:
    """Round a linear's weight.

    Args:
        weight: Floating-point `[out, d_in]`, in the factor's dtype.
        factor: Of the Gram matrix of the linear's input.
        kind: Of the grids.
        group_size: Inputs that share a scale; d_in for one group per row.
        static_groups: Whether grids are fitted beforehand, to groups of inputs as they are numbered, instead
            of to the columns as they have become when their turn comes, in the order they are rounded in.
        search: Whether grids are searched for the least error (MSE) instead of spanning the range (MinMax).
        weighting: What errors cost in the search of grids that are fitted beforehand, as for `search_grid`.
    """
    size = weight.shape[1]
    columns = factor.columns
    remaining = weight[:, columns]  # a copy: W, and Δ where columns are rounded
    groups = size // group_size
    if static_groups or groups == 1:
        fitted = weight.reshape(len(weight), -1, group_size)
        grid = search_grid(fitted, kind, SHRINKS, weighting) if search else fit_grid(fitted, kind)
        return _with_static_grids(remaining, factor, grid, kind, group_size)
    q = torch.empty(weight.shape, dtype=torch.uint8, device=weight.device)
    scales = torch.empty(len(weight), groups, dtype=weight.dtype, device=weight.device)
    zero_points = torch.empty_like(scales)
    group_of = torch.empty(size, dtype=torch.int32, device=weight.device)
    for number in range(groups):
        end = size - number * group_size
        begin = end - group_size
        part, corner, sums = _next_block(remaining, factor.lower, begin, end)
        updated = torch.linalg.solve_triangular(corner, sums, upper=False, left=False).add_(part)
        grid = _grid(updated, kind, corner if search else None)
        scales[:, number], zero_points[:, number] = grid.scales[:, 0], grid.zero_points[:, 0]
        each = (group_size, -1)
        chosen = columns[begin:end]
        q[:, chosen] = _round_block(
            part, sums, corner, grid.scales.T.expand(each), grid.zero_points.T.expand(each), kind
        )
        group_of[chosen] = number
    return _codes(q, Grid(scales, zero_points, kind.bits), group_size, group_of)


def _with_static_grids(
    remaining: Tensor, factor: Factor, grid: Grid, kind: GridKind, group_size: int
) -> LinearCodes:
    scales, zero_points = grid.scales.T.contiguous(), grid.zero_points.T.contiguous()
    q = torch.empty(remaining.shape, dtype=torch.uint8, device=remaining.device)
    for end in range(remaining.shape[1], 0, -BLOCK):
        begin = max(0, end - BLOCK)
        part, corner, sums = _next_block(remaining, factor.lower, begin, end)
        chosen = factor.columns[begin:end]
        group = chosen // group_size
        q[:, chosen] = _round_block(part, sums, corner, scales[group], zero_points[group], kind)
    return _codes(q, grid, group_size, None)


def _next_block(remaining: Tensor, lower: Tensor, begin: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
    """A block's columns of W, its corner of L, and Δ·L of all columns rounded before it, `[out, block]`."""
    sums = remaining[:, end:] @ lower[end:, begin:end]
    return remaining[:, begin:end], lower[begin:end, begin:end].tril(), sums


def _grid(updated: Tensor, kind: GridKind, corner: Tensor | None) -> Grid:
    groups = updated.unsqueeze(1)
    if corner is None:
        return fit_grid(groups, kind)
    return search_grid(groups, kind, SHRINKS, (corner @ corner.T).unsqueeze(0))


def _round_block(
    part: Tensor, sums: Tensor, corner: Tensor, scales: Tensor, zero_points: Tensor, kind: GridKind
) -> Tensor:
    """Round a block's columns, the last first, leaving Δ in `part`.

    Args:
        part: `[out, block]`, columns of W.
        sums: `[out, block]`, Σ Δ·L over the columns before this block.
        corner: `[block, block]`, L's.
        scales: `[block, out]`.
        zero_points: `[block, out]`.
        kind: Of the grids.

    Returns:
        Codes, uint8 `[out, block]`.
    """
    # Columns of [out, block] are strided; as rows of the transposed they are not.
    weight, standing = part.T.contiguous(), sums.T.contiguous()
    delta, codes = torch.empty_like(weight), torch.empty_like(weight)
    inverse = (1 / corner.diagonal()).tolist()
    for column in reversed(range(len(weight))):
        at, scale, zero = standing[column], scales[column], zero_points[column]
        if column + 1 < len(weight):
            at.addmv_(delta[column + 1 :].T, corner[column + 1 :, column])
        at.mul_(inverse[column]).add_(weight[column])
        code = torch.div(at, scale, out=codes[column]).round_().add_(zero).clamp_(0, kind.levels)
        rounded = torch.sub(code, zero).mul_(scale)
        torch.sub(weight[column], rounded, out=delta[column])
    part.copy_(delta.T)
    return codes.T.to(torch.uint8)


def _codes(q: Tensor, grid: Grid, group_size: int, group_of: Tensor | None) -> LinearCodes:
    size = q.shape[1]
    if group_of is not None:
        natural = torch.arange(size, device=q.device, dtype=torch.int32) // group_size
        if torch.equal(group_of, natural):
            group_of = None
    return LinearCodes(
        q=q.cpu(),
        scales=grid.scales.half().cpu(),
        zero_points=grid.zero_points.to(torch.uint8).cpu(),
        bits=grid.bits,
        group_size=group_size,
        group_index=None if group_of is None else group_of.cpu(),
    )
