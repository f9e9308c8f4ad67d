"""How far a mean per token may be from the truth, in standard errors: the tails of its studentized error.

With t = (estimate − truth) / standard error, the one-sided bounds of the truth are estimate − q₀.₉₅ · s and
estimate − q₀.₀₅ · s. Student's quantiles belong to symmetric values. With values skewed to the right, a
sample that has missed the long tail has too small a mean *and* too small a standard error, so that t reaches
much farther down than up, and the truth is above Student's upper bound far more often than one time in 20.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1999
"""Resamples of documents: quantiles are then known to a few hundredths of a standard error of the mean."""

_AT_ONCE = 1 << 22
"""Resampled documents held at once: some tens of megabytes."""

_SEED = 20_261_130  # any will do, the same for ever: equal samples have equal verdicts


@dataclass(frozen=True)
class Tails:
    """How far an interval reaches, in standard errors of the estimate.

    Attributes:
        below: From the estimate to the lower bound.
        above: From the estimate to the upper bound.
    """

    below: float
    above: float


@dataclass(frozen=True)
class Clusters:
    """Documents as a ratio of sums sees them.

    Attributes:
        sums: Sum of the values of each, [documents].
        weights: Tokens of each, [documents].
    """

    sums: NDArray[np.float64]
    weights: NDArray[np.float64]

    @property
    def count(self) -> int:
        """Documents."""
        return len(self.sums)

    @property
    def ratio(self) -> float:
        """Mean per token."""
        return float(self.sums.sum()) / float(self.weights.sum())

    @property
    def std_error(self) -> float:
        """Its standard error by linearisation; of two documents or more."""
        residuals = self.sums - self.ratio * self.weights
        variance = self.count / (self.count - 1) * float(residuals @ residuals)
        return float(np.sqrt(variance)) / float(self.weights.sum())


def resampled_tails(clusters: Clusters, level: float) -> Tails:
    """Tails from resampling whole documents: the bootstrap-t interval.

    Efron (1982), The Jackknife, the Bootstrap and Other Resampling Plans, §10.10; of second order by Hall
    (1988), "Theoretical comparison of bootstrap confidence intervals", Annals of Statistics 16.

    Args:
        clusters: Documents that differ in their means.
        level: One-sided level of both bounds.
    """
    random = np.random.Generator(np.random.PCG64(_SEED))
    count, ratio = clusters.count, clusters.ratio
    parts: list[NDArray[np.float64]] = []
    step = max(1, _AT_ONCE // count)
    for begin in range(0, RESAMPLES, step):
        drawn = random.multinomial(count, np.full(count, 1 / count), size=min(step, RESAMPLES - begin))
        parts.append(_studentized(drawn.astype(np.float64), clusters, ratio))
    return _tails(np.concatenate(parts), level)


def _studentized(drawn: NDArray[np.float64], clusters: Clusters, truth: float) -> NDArray[np.float64]:
    """Studentized errors of resamples, given how often each has each document, [resamples, documents]."""
    y, m = clusters.sums, clusters.weights
    tokens = drawn @ m
    ratio = drawn @ y / tokens
    squares = drawn @ (y * y) - 2 * ratio * (drawn @ (y * m)) + ratio**2 * (drawn @ (m * m))
    std_error = np.sqrt(clusters.count / (clusters.count - 1) * np.maximum(squares, 0)) / tokens
    return _divided(ratio - truth, std_error)


def lognormal_tails(clusters: Clusters, level: float) -> Tails:
    """Tails from a log-normal working model of the documents' means: a parametric bootstrap-t.

    A sample of some tens of documents does not show how long a tail is, so that resampling it cannot, either;
    but it does show the spread of logarithms, and means of divergences are positive. The model has the
    sample's documents as long as they are, and its spread of logarithms, weighted by tokens as the mean is.

    Args:
        clusters: Documents whose sums are positive.
        level: One-sided level of both bounds.
    """
    m = clusters.weights
    logs = np.log(clusters.sums / m)
    centre = float(m @ logs) / float(m.sum())
    count = clusters.count
    variance = count / (count - 1) * float(m @ (logs - centre) ** 2) / float(m.sum())
    random = np.random.Generator(np.random.PCG64(_SEED))
    parts: list[NDArray[np.float64]] = []
    step = max(1, _AT_ONCE // count)
    for begin in range(0, RESAMPLES, step):
        normal = random.standard_normal((min(step, RESAMPLES - begin), count))
        sums = np.exp(np.sqrt(variance) * normal - variance / 2) * m
        ratio = sums.sum(axis=1) / m.sum()
        squares = ((sums - ratio[:, None] * m) ** 2).sum(axis=1)
        parts.append(_divided(ratio - 1, np.sqrt(count / (count - 1) * squares) / m.sum()))
    return _tails(np.concatenate(parts), level)


def _tails(studentized: NDArray[np.float64], level: float) -> Tails:
    low, high = np.quantile(studentized, [1 - level, level])
    return Tails(below=float(high), above=float(-low))


def _divided(error: NDArray[np.float64], std_error: NDArray[np.float64]) -> NDArray[np.float64]:
    """Error in standard errors; as good as infinite for a resample of copies of one document."""
    return error / np.maximum(std_error, np.finfo(np.float64).tiny)
