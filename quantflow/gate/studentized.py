"""How far a mean per token may be from the truth, in standard errors: the tails of its studentized error.

With t = (estimate − truth) / standard error, the one-sided bounds of the truth are estimate − q₀.₉₅ · s and
estimate − q₀.₀₅ · s. Student's quantiles belong to symmetric values. With values skewed to the right, a
sample that has missed the long tail has too small a mean *and* too small a standard error, so that t reaches
much farther down than up, and the truth is above Student's upper bound far more often than one time in 20.

Samples may be many, along leading dimensions, so that simulations run the code that judges.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Floats = NDArray[np.float64]

RESAMPLES = 1999
"""Resamples of documents: quantiles are then known to a few hundredths of a standard error of the mean."""

_AT_ONCE = 1 << 22
"""Resampled documents held at once: some tens of megabytes."""

_NO_SPREAD = 1e6
"""Standard errors that no resample is off by, unless its documents do not differ but for rounding."""

_SEED = 20_261_130  # any will do, the same for ever: equal samples have equal verdicts


@dataclass(frozen=True)
class Tails:
    """How far an interval reaches, in standard errors of the estimate.

    Attributes:
        below: From the estimate to the lower bound, [...].
        above: From the estimate to the upper bound, [...].
    """

    below: Floats
    above: Floats


@dataclass(frozen=True)
class Clusters:
    """Documents as a ratio of sums sees them; one sample of them, or many.

    Attributes:
        sums: Sum of the values of each, [..., documents].
        weights: Tokens of each, [..., documents].
    """

    sums: Floats
    weights: Floats

    @property
    def count(self) -> int:
        """Documents of a sample."""
        return int(self.sums.shape[-1])

    @property
    def ratio(self) -> Floats:
        """Mean per token, [...]."""
        return np.asarray(self.sums.sum(axis=-1) / self.weights.sum(axis=-1))

    @property
    def std_error(self) -> Floats:
        """Its standard error by linearisation, [...]; of two documents or more."""
        residuals = self.sums - self.ratio[..., None] * self.weights
        variance = self.count / (self.count - 1) * (residuals * residuals).sum(axis=-1)
        return np.asarray(np.sqrt(variance) / self.weights.sum(axis=-1))


def resampled_tails(clusters: Clusters, level: float) -> Tails:
    """Tails from resampling whole documents: the bootstrap-t interval.

    Efron (1982), The Jackknife, the Bootstrap and Other Resampling Plans, §10.10; of second order by Hall
    (1988), "Theoretical comparison of bootstrap confidence intervals", Annals of Statistics 16.

    Args:
        clusters: Documents that differ in their means.
        level: One-sided level of both bounds.
    """
    y, m, truth = clusters.sums, clusters.weights, clusters.ratio[..., None]
    correction = clusters.count / (clusters.count - 1)
    parts = []
    for drawn in _draws(clusters.count):
        tokens = m @ drawn
        ratio = y @ drawn / tokens
        squares = (y * y) @ drawn - 2 * ratio * ((y * m) @ drawn) + ratio**2 * ((m * m) @ drawn)
        parts.append(_divided(ratio - truth, np.sqrt(correction * np.maximum(squares, 0)) / tokens))
    studentized = np.concatenate(parts, axis=-1)
    found = _tails(studentized, level)
    # Where few documents differ at all, many resamples have none of them, and no spread to divide by.
    empty = (np.abs(studentized) >= _NO_SPREAD).mean(axis=-1) > (1 - level) / 2
    student = float(stdtrit(clusters.count - 1, level))
    return Tails(np.where(empty, student, found.below), np.where(empty, student, found.above))


def lognormal_tails(clusters: Clusters, level: float) -> Tails:
    """Tails from a log-normal working model of the documents' means: a parametric bootstrap-t.

    A sample of some tens of documents does not show how long a tail is, so that resampling it cannot, either;
    but it does show the spread of logarithms, and means of divergences are positive. The model has the
    sample's documents as long as they are, and its spread of logarithms, weighted by tokens as the mean is.

    Args:
        clusters: Documents whose sums are positive.
        level: One-sided level of both bounds.
    """
    m, count = clusters.weights, clusters.count
    share = m / m.sum(axis=-1, keepdims=True)
    logs = np.log(clusters.sums / m)
    centred = logs - (share * logs).sum(axis=-1, keepdims=True)
    variance = count / (count - 1) * (share * centred**2).sum(axis=-1)
    below, above = np.empty(variance.shape), np.empty(variance.shape)
    for at in np.ndindex(variance.shape):
        weights, spread = share[at].astype(np.float32), np.float32(variance[at])
        parts = []
        for normal in _normals(count):
            beyond = np.expm1(
                np.sqrt(spread) * normal - spread / 2
            )  # of the mean of 1; exact for small spreads
            error = (beyond @ weights).astype(np.float64)
            squares = (beyond - error[:, None].astype(np.float32)) ** 2 @ (weights * weights)
            parts.append(_divided(error, np.sqrt(count / (count - 1) * squares.astype(np.float64))))
        found = _tails(np.concatenate(parts), level)
        below[at], above[at] = found.below, found.above
    return Tails(below, above)


@lru_cache(maxsize=1)
def _draws(count: int) -> tuple[Floats, ...]:
    """How often each document is in each resample, [documents, resamples], in parts that fit in memory."""
    random = np.random.Generator(np.random.PCG64(_SEED))
    chances = np.full(count, 1 / count)
    return tuple(
        np.ascontiguousarray(random.multinomial(count, chances, size=size).T.astype(np.float64))
        for size in _sizes(count)
    )


@lru_cache(maxsize=1)
def _normals(count: int) -> tuple[NDArray[np.float32], ...]:
    """Standard normal numbers, [resamples, documents], in parts that fit in memory."""
    random = np.random.Generator(np.random.PCG64(_SEED))
    return tuple(random.standard_normal((size, count), dtype=np.float32) for size in _sizes(count))


def _sizes(count: int) -> list[int]:
    step = max(1, _AT_ONCE // count)
    return [min(step, RESAMPLES - begin) for begin in range(0, RESAMPLES, step)]


def _tails(studentized: Floats, level: float) -> Tails:
    low, high = np.quantile(studentized, [1 - level, level], axis=-1)
    return Tails(below=high, above=-low)


def _divided(error: Floats, std_error: Floats) -> Floats:
    """Error in standard errors, `_NO_SPREAD` of them for a resample of documents that do not differ."""
    floor = np.abs(error) / _NO_SPREAD
    return np.asarray(error / np.maximum(std_error, np.maximum(floor, np.finfo(np.float64).tiny)))
