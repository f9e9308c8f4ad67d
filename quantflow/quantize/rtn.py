"""Rounding to nearest, the yardstick: no calibration, every group spans its range."""

from torch import Tensor

from quantflow.quantize.codes import LinearCodes, grid_codes
from quantflow.quantize.grid import GridKind, fit_grid, search_grid
from quantflow.quantize.search_space import SHRINKS


def quantize_rtn(weight: Tensor, *, kind: GridKind, group_size: int, search: bool = False) -> LinearCodes:
    """Round a linear's weight to the nearest codes.

    Args:
        weight: float32 `[out, d_in]`.
        kind: Of the grids.
        group_size: Inputs that share a scale.
        search: Whether grids are searched for the least error of the weights instead of spanning the range.
    """
    groups = weight.reshape(len(weight), -1, group_size)
    return grid_codes(weight, search_grid(groups, kind, SHRINKS) if search else fit_grid(groups, kind))
