"""Looking at the evidence while it comes in, without looking making it worth less: group-sequential bounds.

Documents come in random order. After each look a criterion whose bound has cleared its margin is decided, and
measuring ends when every criterion is. Each look spends a part of the 5 % that one bound may err with
(Lan & DeMets 1983, "Discrete sequential boundaries for clinical trials", Biometrika 70), so that all looks
together err no more than one test at the end would.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri, stdtrit

from quantflow.gate.statistics import ONE_SIDED_LEVEL, RatioEstimate

SPENDING_POWER = 2.0
"""α(t) = α·tᵖ (Kim & DeMets 1987, Biometrika 74): between p = 1, much like Pocock's bounds, which stop early
and lose power, and p = 3, much like O'Brien and Fleming's, which hardly stop before half of the sample."""

RESOLVED = 0.005
"""Least one-sided probability that the tails of long-tailed values are read at: ten of the 1999 resamples lie
beyond. Bounds of stricter looks grow from there, which is far enough out to know how long the tail is."""

_LOWEST = -8.0  # standard errors; what is below has a probability of 1e-15
_POINTS = 1201  # of the grid that the density is followed on: levels are then exact to 1e-6


def look_levels(fractions: Sequence[float], alpha: float = 1 - ONE_SIDED_LEVEL) -> tuple[float, ...]:
    """One-sided level at which each look tests, so that all together err with α.

    By recursive integration over the paths that have crossed no bound so far (Armitage, McPherson & Rowe
    1969, J. R. Statist. Soc. A 132; Jennison & Turnbull, Group Sequential Methods, 2000, §19).

    Args:
        fractions: Share of all the evidence that each look has, ascending, the last one 1.
        alpha: Probability that any look errs, where the truth lies on the margin.

    Raises:
        ValueError: The fractions do not ascend to 1.
    """
    if (
        not fractions
        or fractions[0] <= 0
        or fractions[-1] != 1
        or any(b <= a for a, b in pairwise(fractions))
    ):
        raise ValueError(f"the shares of evidence have to ascend to 1: {fractions}")
    levels: list[float] = []
    grid = density = np.empty(0)
    spent = before = 0.0
    for fraction in fractions:
        to_spend = alpha * fraction**SPENDING_POWER - spent
        spent += to_spend
        root = math.sqrt(fraction - before)
        bound = _bound(grid, density, root, to_spend) if levels else -float(ndtri(to_spend)) * root
        levels.append(float(ndtr(-bound / math.sqrt(fraction))))
        here = np.linspace(_LOWEST * math.sqrt(fraction), bound, _POINTS)
        if density.size:
            steps = _normal_density((here[:, None] - grid) / root) / root
            density = np.asarray(np.trapezoid(steps * density, grid, axis=1))
        else:
            density = _normal_density(here / root) / root
        grid, before = here, fraction
    return tuple(levels)


def _bound(grid: NDArray[np.float64], density: NDArray[np.float64], root: float, to_spend: float) -> float:
    """Where the paths still running cross with this probability."""

    def beyond(bound: float) -> float:
        return float(np.trapezoid(density * ndtr((grid - bound) / root), grid)) - to_spend

    return float(brentq(beyond, _LOWEST, -_LOWEST, xtol=1e-9))


def _normal_density(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def level_factor(degrees_of_freedom: int, level: float, found_at: float = 1 - ONE_SIDED_LEVEL) -> float:
    """How many times as far a bound reaches at another one-sided probability than it was found at."""
    return float(stdtrit(degrees_of_freedom, 1 - level) / stdtrit(degrees_of_freedom, 1 - found_at))


def at_level(estimate: RatioEstimate, level: float, found_at: float = 1 - ONE_SIDED_LEVEL) -> RatioEstimate:
    """The same estimate with bounds that err with another one-sided probability.

    Both arms grow as Student's quantile does: how skewed they are is known from the tails they were found at.

    Args:
        estimate: With bounds that miss the truth with a one-sided probability of `found_at`.
        level: The probability wanted.
        found_at: The probability of the estimate's.
    """
    factor = level_factor(estimate.n_clusters - 1, level, found_at)
    return RatioEstimate(
        value=estimate.value,
        std_error=estimate.std_error,
        ci_low=estimate.value - factor * (estimate.value - estimate.ci_low),
        ci_high=estimate.value + factor * (estimate.ci_high - estimate.value),
        n=estimate.n,
        n_clusters=estimate.n_clusters,
    )


@dataclass(frozen=True)
class Saving:
    """What stopping early saved.

    Attributes:
        measured: Documents measured.
        available: Documents there were.
        looks: Looks taken.
    """

    measured: int
    available: int
    looks: int

    @property
    def share(self) -> float:
        """Share of the documents that did not have to be measured."""
        return 1 - self.measured / self.available

    def sentence(self) -> str:
        """In plain words."""
        looks = "1 look" if self.looks == 1 else f"{self.looks} looks"
        if self.measured == self.available:
            return f"All {self.available} documents were needed ({looks})."
        return (
            f"Perplexity and KL were decided after {self.measured} of {self.available} documents ({looks}): "
            f"{100 * self.share:.0f} % of the measuring was saved."
        )
