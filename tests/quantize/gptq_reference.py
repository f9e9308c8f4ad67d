"""GPTQ as the paper describes it, column by column with the inverse at hand: slow and plainly right."""

import torch
from torch import Tensor

from quantflow.quantize.grid import Grid, GridKind, encode, fit_grid


def reference_gptq(
    weight: Tensor,
    gram: Tensor,
    *,
    kind: GridKind,
    group_size: int,
    damping: float,
    by_activation: bool = False,
    static_groups: bool = False,
) -> Tensor:
    """The rounded weight, float64 `[out, d_in]`: equations 2 and 3 of arXiv:2210.17323, column by column."""
    weight, gram = weight.double().clone(), gram.double().clone()
    size = weight.shape[1]
    gram += damping * gram.diagonal().mean() * torch.eye(size, dtype=torch.float64)
    inverse = torch.linalg.inv(gram)
    order = list(range(size))
    if by_activation:
        order.sort(key=lambda column: -float(gram[column, column]))
    original = weight.clone()
    rounded = torch.zeros_like(weight)
    grid: Grid | None = None
    for step, column in enumerate(order):
        if static_groups:
            first = column // group_size * group_size
            grid = fit_grid(original[:, first : first + group_size].unsqueeze(1), kind)
        elif step % group_size == 0:
            grid = fit_grid(weight[:, order[step : step + group_size]].unsqueeze(1), kind)
        assert grid is not None
        code = encode(weight[:, column, None, None], grid)
        rounded[:, column] = ((code - grid.zero_points.unsqueeze(-1)) * grid.scales.unsqueeze(-1)).reshape(-1)
        error = (weight[:, column] - rounded[:, column]) / inverse[column, column]
        left = order[step + 1 :]
        weight[:, left] -= torch.outer(error, inverse[column, left])
        inverse -= torch.outer(inverse[:, column], inverse[column]) / inverse[column, column]
    return rounded
