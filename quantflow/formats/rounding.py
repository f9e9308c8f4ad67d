"""What is lost when numbers are stored in another floating-point type, counted value by value."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

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
    # Wide enough for every value of both types, so that the comparison itself rounds nothing.
    wide = torch.float64 if values.dtype == torch.float64 else torch.float32
    before, after = values.to(wide), stored.to(wide)
    changed = before != after
    counted = int(changed.sum())
    low, high = (float(bound) for bound in torch.aminmax(before)) if values.numel() else (0.0, 0.0)
    result = Losses(values=values.numel(), changed=counted, largest=max(abs(low), abs(high)))
    if not counted:  # as nearly everywhere, where the type only drops range
        return result
    before, after = before[changed], after[changed]
    small, zero = after.abs() < torch.finfo(dtype).smallest_normal, after == 0
    return replace(
        result,
        overflow=int((torch.isinf(after) & torch.isfinite(before)).sum()),
        to_zero=int((small & zero).sum()),
        to_subnormal=int((small & ~zero).sum()),
    )


def tensor_losses(name: str, chunks: Iterable[Tensor], dtype: torch.dtype) -> Losses:
    """Count the losses of a tensor that comes in pieces.

    Raises:
        SourceError: It holds what is not a finite number.
    """
    total = Losses()
    for chunk in chunks:
        counted = losses(chunk, dtype)
        if not math.isfinite(counted.largest):
            raise SourceError("holds NaN or infinite values", where=name)
        total += counted
    return total
