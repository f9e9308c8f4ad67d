"""Trends of a metric over runs: where its level changed, beyond its own noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

NORMAL_MAD = 1.4826
"""Standard deviation of a normal distribution by its median absolute deviation."""
SAME = 1e-9
"""Relative difference below which two figures are one: a run repeated gives equal figures."""
PENALTY = 10.0
"""Squared standard errors that a change has to be worth, besides those of looking at every place (2 log n):
with it under one series in twenty of pure noise shows a change, see the test."""


@dataclass(frozen=True)
class Change:
    """A change of level.

    Attributes:
        at: Index of the first value of the new level.
        before: Mean of the level before.
        after: Mean of the new level.
    """

    at: int
    before: float
    after: float


def changes(values: Sequence[float]) -> tuple[Change, ...]:
    """Where the mean of a series changed, by binary segmentation (Scott and Knott 1974) with a fixed penalty.

    Noise is estimated from the differences of neighbours (their median absolute deviation), which a change
    of level hardly touches. A series without noise, such as one of runs answered from the store, changes
    wherever two values differ.

    Args:
        values: Finite values, the oldest first.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.size < 2:
        return ()
    steps = np.abs(np.diff(series))
    noise = NORMAL_MAD * float(np.median(steps)) / math.sqrt(2)
    least = SAME * float(np.abs(series).max())
    cuts = sorted(_cuts(series, 0, max(noise, least), 2 * math.log(series.size) + PENALTY))
    edges = [0, *cuts, series.size]
    levels = [float(series[a:b].mean()) for a, b in pairwise(edges)]
    return tuple(
        Change(cut, before, after) for cut, (before, after) in zip(cuts, pairwise(levels), strict=True)
    )


def _cuts(series: NDArray[np.float64], start: int, noise: float, penalty: float) -> list[int]:
    size = series.size
    if size < 2 or noise == 0:
        return []
    left = np.arange(1, size)
    sums = np.cumsum(series)[:-1]
    means, others = sums / left, (series.sum() - sums) / (size - left)
    worth = left * (size - left) / size * ((means - others) / noise) ** 2
    best = int(worth.argmax())
    if worth[best] <= penalty:
        return []
    cut = best + 1
    return [
        *_cuts(series[:cut], start, noise, penalty),
        start + cut,
        *_cuts(series[cut:], start + cut, noise, penalty),
    ]
