"""What is lost when numbers are stored in another floating-point type, counted value by value."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from quantflow.errors import SourceError


@dataclass(frozen=True)
class Losses:
    """What a change of data type does to a tensor's values; all but `largest` are numbers of values.

    Attributes:
        values: All of them.
        changed: Come out as another number, for whatever reason.
        overflow: Are beyond the largest number of the type and would become infinite.
        to_zero: Are too small for it and become zero.
        to_subnormal: Lose digits because they fall below its normal range, and are not zero.
        largest: Largest magnitude.
    """

    values: int = 0
    changed: int = 0
    overflow: int = 0
    to_zero: int = 0
    to_subnormal: int = 0
    largest: float = 0.0

    def __add__(self, other: "Losses") -> "Losses":
        """Both together."""
        return Losses(
            self.values + other.values,
            self.changed + other.changed,
            self.overflow + other.overflow,
            self.to_zero + other.to_zero,
            self.to_subnormal + other.to_subnormal,
            max(self.largest, other.largest),
        )

    @property
    def underflow(self) -> int:
        """Values that are too small for the type to hold with all its digits."""
        return self.to_zero + self.to_subnormal


def losses(values: Tensor, dtype: torch.dtype) -> Losses:
    """Count what becomes of floating-point values in another type.

    Args:
        values: In their own type, of any shape.
        dtype: The type they are to have.
    """
    stored = values.to(dtype)
    # float64 holds every value of all types here, so that this comparison rounds nothing.
    before, after = values.to(torch.float64), stored.to(torch.float64)
    changed = before != after
    small = changed & (after.abs() < torch.finfo(dtype).smallest_normal)
    zero = after == 0
    return Losses(
        values=values.numel(),
        changed=int(changed.sum()),
        overflow=int((torch.isinf(after) & torch.isfinite(before)).sum()),
        to_zero=int((small & zero).sum()),
        to_subnormal=int((small & ~zero).sum()),
        largest=float(before.abs().max()) if values.numel() else 0.0,
    )


def tensor_losses(name: str, chunks: Iterable[Tensor], dtype: torch.dtype) -> Losses:
    """Count the losses of a tensor that comes in pieces.

    Raises:
        SourceError: It holds what is not a finite number.
    """
    total = Losses()
    for chunk in chunks:
        if not bool(torch.isfinite(chunk).all()):
            raise SourceError("holds NaN or infinite values", where=name)
        total += losses(chunk, dtype)
    return total
