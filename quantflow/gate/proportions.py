"""Two models at the same items, right or wrong: what the difference of their accuracies is, how surely."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, ndtri

from quantflow.data.documents import MIN_DOCUMENTS
from quantflow.gate.statistics import ONE_SIDED_LEVEL, POWER, t_quantile

_SOLVED = 1e-10
"""To which the ends of an interval are solved for: far below the last figure that anyone reads."""

_MOST_ITEMS = 10**8
"""No one collects more items than this; a drop that needs them equals its margin in practice."""

_FEWEST_FLIPPED = 10
"""Groups with a flip from which the spread between groups is believed to be smaller than that of items."""


@dataclass(frozen=True)
class PairedProportions:
    """The drop in the share of right answers from the baseline to the artifact.

    Attributes:
        baseline: Share of items that the baseline answers rightly.
        artifact: Share that the artifact answers rightly.
        drop: Their difference, a fraction; positive where the artifact is worse.
        ci_low: Lower end of the drop's 90 % interval, a one-sided 95 % bound.
        ci_high: Upper end, a one-sided 95 % bound.
        lost: Items that the baseline has right and the artifact wrong.
        gained: Items that the artifact has right and the baseline wrong.
        n: Items.
        n_clusters: Groups of items, such as questions on one passage; the items where nothing groups them.
        design_effect: By how much grouping multiplies the variance of the drop.
        mcnemar_p: Two-sided p of McNemar's test that lost and gained are equally likely. A description: that
            nothing was found is no evidence that nothing is there.
    """

    baseline: float
    artifact: float
    drop: float
    ci_low: float
    ci_high: float
    lost: int
    gained: int
    n: int
    n_clusters: int
    design_effect: float
    mcnemar_p: float


def paired_proportions(
    baseline: NDArray[np.bool_], artifact: NDArray[np.bool_], group: NDArray[np.integer] | None = None
) -> PairedProportions:
    """Estimate the drop in accuracy over items that both models answered.

    Tango's score interval, which holds its level for rare flips and small samples, where Wald's does not.
    Where items are grouped the counts are divided by the design effect, the ratio of the variance between
    groups to that of independent items (Rao & Scott 1992, "A simple method for the analysis of clustered
    binary data"), and the quantile is Student's with one degree of freedom less than groups.

    Args:
        baseline: Whether the baseline's answer is right, [items].
        artifact: Whether the artifact's is, the same items in the same order, [items].
        group: What items belong together, [items]; None where each stands for itself.

    Raises:
        ValueError: There are no items, or the arrays differ in length.
    """
    if (
        baseline.size == 0
        or baseline.shape != artifact.shape
        or (group is not None and group.shape != baseline.shape)
    ):
        raise ValueError(
            f"need the same items on both sides and at least one: {baseline.shape}, {artifact.shape}"
        )
    n = baseline.size
    lost = int(np.count_nonzero(baseline & ~artifact))
    gained = int(np.count_nonzero(~baseline & artifact))
    clusters, effect, quantile = n, 1.0, float(ndtri(ONE_SIDED_LEVEL))
    if group is not None:
        effect, clusters = _design_effect(baseline.astype(np.int8) - artifact.astype(np.int8), group)
    if clusters < n:
        if clusters < 2:
            low, high = -1.0, 1.0
        else:
            low, high = tango_interval(lost / effect, gained / effect, n / effect, t_quantile(clusters - 1))
    else:
        low, high = tango_interval(lost, gained, n, quantile)
    return PairedProportions(
        baseline=float(baseline.mean()),
        artifact=float(artifact.mean()),
        drop=(lost - gained) / n,
        ci_low=low,
        ci_high=high,
        lost=lost,
        gained=gained,
        n=n,
        n_clusters=clusters,
        design_effect=effect,
        mcnemar_p=mcnemar(lost, gained),
    )


def _design_effect(difference: NDArray[np.int8], group: NDArray[np.integer]) -> tuple[float, int]:
    """Variance between groups over that of independent items, and the number of groups."""
    _, of = np.unique(group, return_inverse=True)
    sums = np.bincount(of, weights=difference)
    items = np.bincount(of).astype(np.float64)
    clusters = len(sums)
    variance = float(difference.var()) * difference.size
    if clusters < 2 or variance == 0:
        return 1.0, clusters
    residuals = sums - float(difference.mean()) * items
    effect = clusters / (clusters - 1) * float(residuals @ residuals) / variance
    flipped = int(np.count_nonzero(np.bincount(of, weights=difference != 0)))
    # From a few flips a design effect below one is luck; it must not narrow the interval.
    return (effect if flipped >= _FEWEST_FLIPPED else max(effect, 1.0)), clusters


def tango_interval(lost: float, gained: float, n: float, quantile: float) -> tuple[float, float]:
    """Score interval for the difference of two paired proportions, (lost − gained) / n.

    Tango (1998), "Equivalence test and confidence interval for the difference in proportions for the
    paired-sample design", Statistics in Medicine 17: the differences Δ that a score test does not reject.

    Args:
        lost: Items counted for the difference; a fraction of them where they are grouped.
        gained: Items counted against it.
        n: All items.
        quantile: How many standard errors: the normal quantile of the one-sided level.

    Returns:
        Both ends, within −1 and 1.
    """
    estimate = (lost - gained) / n

    def end(outer: float) -> float:
        inner = estimate
        while abs(outer - inner) > _SOLVED:
            middle = (inner + outer) / 2
            if abs(_score(lost, gained, n, middle)) < quantile:
                inner = middle
            else:
                outer = middle
        return (inner + outer) / 2

    return end(-1.0), end(1.0)


def _score(lost: float, gained: float, n: float, difference: float) -> float:
    """Tango's score statistic at a hypothetical difference; infinite where it is impossible."""
    share = difference * (1 - difference)
    b = (2 * n - lost + gained) * difference - lost - gained
    root = math.sqrt(max(0.0, b * b + 8 * n * gained * share))
    nuisance = (root - b) / (4 * n)
    variance = n * (2 * nuisance + share)
    above = lost - gained - n * difference
    return above / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, above)


def mcnemar(lost: int, gained: int) -> float:
    """Two-sided exact p of McNemar's test (1947): twice the smaller binomial tail, 1 at most."""
    flips = lost + gained
    return 1.0 if flips == 0 else min(1.0, 2 * float(bdtr(min(lost, gained), flips, 0.5)))


def needed_items(found: PairedProportions, margin: float) -> int | None:
    """Items that would decide at this drop and this rate of flips; half of such samples come out less clear.

    Args:
        found: What was measured.
        margin: Largest acceptable drop, a fraction.

    Returns:
        Items, `MIN_DOCUMENTS` at least; None where the drop equals the margin, or as good as does.
    """
    if found.drop == margin:
        return None
    z = float(ndtri(ONE_SIDED_LEVEL))

    def decides(items: int) -> bool:
        scale = items / found.design_effect / found.n
        low, high = tango_interval(scale * found.lost, scale * found.gained, scale * found.n, z)
        return high < margin or low > margin

    most = MIN_DOCUMENTS
    while not decides(most):
        most *= 2
        if most > _MOST_ITEMS:
            return None
    least = most // 2 if most > MIN_DOCUMENTS else most
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if decides(middle) else (middle, most)
    return most


def detectable_drop(found: PairedProportions) -> float:
    """The smallest true drop that a sample like this one would have told from none, with a power of 80 %."""
    flips = max(found.lost + found.gained, 1) / found.n
    z = float(ndtri(ONE_SIDED_LEVEL)) + float(ndtri(POWER))
    return z * math.sqrt(flips * max(found.design_effect, 1.0) / found.n)


@dataclass(frozen=True)
class Recovery:
    """How much of the baseline's scores the artifact keeps, all tasks together.

    Attributes:
        value: Mean of the artifact's scores over tasks, divided by that of the baseline's.
        ci_low: Lower end of its 90 % interval.
        ci_high: Upper end.
        tasks: Tasks.
        n: Items of all tasks.
    """

    value: float
    ci_low: float
    ci_high: float
    tasks: int
    n: int


@dataclass(frozen=True)
class TaskScores:
    """Scores of both models at the items of one task; more is better.

    Attributes:
        baseline: The baseline's score, [items].
        artifact: The artifact's, [items].
        group: What items belong together, [items]; None where each stands for itself.
    """

    baseline: NDArray[np.float64]
    artifact: NDArray[np.float64]
    group: NDArray[np.integer] | None = None


def pooled_recovery(tasks: Mapping[str, TaskScores]) -> Recovery | None:
    """Pool tasks, each with the same weight whatever its size, into one figure; for the reader, not judged.

    Its standard error is by linearisation, groups within a task being independent and tasks strata.

    Args:
        tasks: Name → scores; of metrics of which more is better.

    Returns:
        The recovery; None where there is no item, or the baseline scores nothing.
    """
    scored = [task for task in tasks.values() if task.baseline.size]
    before = sum(float(task.baseline.mean()) for task in scored)
    if before <= 0:
        return None
    value = sum(float(task.artifact.mean()) for task in scored) / before
    variance, freedom = 0.0, 0
    for task in scored:
        residuals = (task.artifact - value * task.baseline) / task.baseline.size
        group = (
            np.arange(residuals.size) if task.group is None else np.unique(task.group, return_inverse=True)[1]
        )
        sums = np.bincount(group, weights=residuals)
        clusters = len(sums)
        if clusters < 2:
            return Recovery(value, -math.inf, math.inf, len(scored), sum(t.baseline.size for t in scored))
        spread = sums - sums.mean()
        variance += clusters / (clusters - 1) * float(spread @ spread)
        freedom += clusters - 1
    half = t_quantile(freedom) * math.sqrt(variance) / before
    n = sum(task.baseline.size for task in scored)
    return Recovery(value, value - half, value + half, len(scored), n)
