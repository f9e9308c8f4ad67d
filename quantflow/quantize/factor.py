"""The Cholesky factor that GPTQ rounds by: made in place, damped until it exists, one for all of a unit."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from quantflow.errors import QuantizationError
from quantflow.quantize.sizes import CORNER, PANEL

# Damping is multiplied by this for each new try, as often as this.
HARDER, TRIES = 10.0, 5


@dataclass(frozen=True)
class Factor:
    """H = L·Lᵀ of a damped Gram matrix whose inputs are in the reverse of the order they are rounded in.

    With H so reversed, GPTQ's update of a column by the errors of those rounded before it is a column of L
    (Chee et al., 2023, arXiv:2307.13304, theorem 6): no inverse is needed, nor a second factorisation.

    Attributes:
        lower: `[d_in, d_in]`, L in its lower triangle; what is above means nothing.
        columns: int64 `[d_in]`, the input that each row and column of L is of; the last is rounded first.
        damping: What was added to the diagonal, as a part of its mean.
        tries: How often it had to be raised before the matrix would factor.
    """

    lower: Tensor
    columns: Tensor
    damping: float
    tries: int


def factorize(gram: Tensor, *, damping: float, by_activation: bool = False, shrinkage: float = 0.0) -> Factor:
    """Factor a Gram matrix in place, which is destroyed by it.

    Args:
        gram: Floating-point `[d_in, d_in]`, Σ x·xᵀ.
        damping: Part of the diagonal's mean that is added to the diagonal; raised as long as the matrix will
            not factor.
        by_activation: Whether the loudest inputs are rounded first (desc_act) instead of the first.
        shrinkage: Part of all that is off the diagonal that is taken away: correlations between inputs count
            for that much less, how loud each input is for as much as before.

    Raises:
        QuantizationError: The matrix is not finite, or does not factor however much it is damped.
    """
    diagonal = gram.diagonal().clone()
    if not all(bool(torch.isfinite(gram[panel]).all()) for panel in _panels(len(gram))):
        raise QuantizationError("the Gram matrix of its input holds NaN or infinite values")
    size = len(diagonal)
    order = (
        torch.argsort(diagonal, descending=True, stable=True)
        if by_activation
        else torch.arange(size, device=gram.device)
    )
    columns = order.flip(0)
    if shrinkage:
        gram.mul_(1 - shrinkage)
    _permute(gram, columns)
    diagonal = diagonal[columns]
    # Inputs that never were anything at all are rounded to nearest, whatever their damping.
    mean = float(diagonal.mean()) or 1.0
    for tries in range(TRIES + 1):
        if tries:
            _restore(gram)
        gram.diagonal().copy_(diagonal).add_(damping * mean)
        if _cholesky(gram):
            return Factor(gram, columns, damping, tries)
        damping = max(damping, 1e-4) * HARDER
    raise QuantizationError("the Gram matrix of its input does not factor, however much it is damped")


def _permute(matrix: Tensor, order: Tensor) -> None:
    """matrix[order][:, order], in place."""
    for panel in _panels(len(matrix)):
        matrix[panel] = matrix[panel][:, order]
    for panel in _panels(len(matrix)):
        matrix[:, panel] = matrix[:, panel][order]


def _panels(size: int) -> Iterator[slice]:
    for begin in range(0, size, PANEL):
        yield slice(begin, min(begin + PANEL, size))


def _restore(matrix: Tensor) -> None:
    """Take the lower triangle, which a factorisation has spoilt, from the upper; the diagonal is lost."""
    size = len(matrix)
    for begin in range(0, size, PANEL):
        end = min(begin + PANEL, size)
        corner = matrix[begin:end, begin:end]
        corner.copy_(corner.triu().add_(corner.triu(1).T))
        matrix[end:, begin:end] = matrix[begin:end, end:].T


def _cholesky(matrix: Tensor) -> bool:
    """Turn the lower triangle of a symmetric matrix into its Cholesky factor; False where there is none."""
    size = len(matrix)
    for begin in range(0, size, CORNER):
        end = min(begin + CORNER, size)
        done = matrix[begin:, :begin]
        panel = matrix[begin:, begin:end]
        above = panel[: end - begin].triu(1)
        panel.addmm_(done, done[: end - begin].T, alpha=-1)
        corner, failed = torch.linalg.cholesky_ex(panel[: end - begin])
        if bool(failed):
            panel[: end - begin].tril_().add_(above)
            return False
        below = panel[end - begin :]
        if len(below):
            below.copy_(torch.linalg.solve_triangular(corner.T, below, upper=True, left=False))
        panel[: end - begin] = corner.tril_().add_(above)
    return True
