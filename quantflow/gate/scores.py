"""Scores of the same items on both sides: whether they can be paired, and what the drop of their mean is."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quantflow.data.documents import MIN_DOCUMENTS
from quantflow.gate.decide import Criterion, decide
from quantflow.gate.proportions import PairedProportions, detectable_drop, needed_items, paired_proportions
from quantflow.gate.result import CriterionResult
from quantflow.gate.statistics import ratio_estimate
from quantflow.gate.verdict import Verdict


def points(value: float) -> str:
    """A difference of two shares, in points of a hundred: `+1.25 points`."""
    return f"{100 * value:+.3g} points"


def judge_scores(
    artifact: str,
    criterion: Criterion,
    before: Sequence[float],
    after: Sequence[float],
    clusters: Sequence[str],
    max_drop: float,
    *,
    higher_is_better: bool,
) -> CriterionResult:
    """Judge the drop of a mean score, paired item by item.

    Scores that are all 0 or 1 are judged as paired proportions (Tango's interval); others by the mean of
    their differences, clustered.

    Args:
        artifact: Name of the artifact.
        criterion: How it is called and shown.
        before: The baseline's score of each item; one at least.
        after: The artifact's, of the same items in the same order.
        clusters: What groups each item.
        max_drop: Margin.
        higher_is_better: Direction of the score.
    """
    old, new = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    group = group_numbers(clusters)
    if set(np.unique(old)) | set(np.unique(new)) <= {0.0, 1.0}:
        right = (old == 1.0, new == 1.0) if higher_is_better else (old == 0.0, new == 0.0)
        found = paired_proportions(*right, group)
        return _proportion(artifact, criterion, found, max_drop, float(old.mean()), float(new.mean()))
    drop = old - new if higher_is_better else new - old
    estimate = ratio_estimate(group, drop)
    return decide(
        artifact, criterion, estimate, max_drop, value=float(new.mean()), baseline=float(old.mean())
    )


def is_above(
    values: Sequence[float], clusters: Sequence[str], chance: float, *, higher_is_better: bool
) -> bool:
    """Whether a mean score is beyond what guessing gives, more than chance explains (one-sided, 5 %)."""
    estimate = ratio_estimate(group_numbers(clusters), np.asarray(values, dtype=np.float64))
    return estimate.ci_low > chance if higher_is_better else estimate.ci_high < 1 - chance


def _proportion(
    artifact: str,
    criterion: Criterion,
    found: PairedProportions,
    max_drop: float,
    baseline: float,
    value: float,
) -> CriterionResult:
    if found.n_clusters < MIN_DOCUMENTS:
        verdict = Verdict.INCONCLUSIVE
    elif found.ci_high < max_drop:
        verdict = Verdict.PASS
    elif found.ci_low > max_drop:
        verdict = Verdict.FAIL
    else:
        verdict = Verdict.INCONCLUSIVE
    needed = needed_items(found, max_drop) if verdict is Verdict.INCONCLUSIVE else None
    grouped = found.n_clusters < found.n
    if needed is not None and grouped:
        needed = -(-needed * found.n_clusters // found.n)
    return CriterionResult(
        artifact=artifact,
        name=criterion.name,
        metric=criterion.metric,
        baseline=baseline,
        value=value,
        delta=found.drop,
        ci_low=found.ci_low,
        ci_high=found.ci_high,
        margin=max_drop,
        n=found.n,
        n_clusters=found.n_clusters,
        verdict=verdict,
        reason=_reason(criterion, found, max_drop, verdict, needed),
        needed_clusters=needed,
        detectable=detectable_drop(found),
    )


def _reason(
    criterion: Criterion, found: PairedProportions, max_drop: float, verdict: Verdict, needed: int | None
) -> str:
    show = criterion.show
    kind = "groups of items" if found.n_clusters < found.n else "items"
    effect = (
        f"{criterion.effect} {show(found.drop)} (90 % interval {show(found.ci_low)} to "
        f"{show(found.ci_high)}; {found.lost} items lost, {found.gained} gained of {found.n})"
    )
    limit = f"the margin of {show(max_drop)}"
    if verdict is Verdict.PASS:
        return f"{effect}: even the upper end is inside {limit}."
    if verdict is Verdict.FAIL:
        return f"{effect}: even the lower end is outside {limit}."
    if found.n_clusters < MIN_DOCUMENTS:
        return (
            f"{effect}, but {found.n_clusters} {kind} are too few to judge {limit} on: at least "
            f"{MIN_DOCUMENTS} are needed."
        )
    if needed is None:
        return f"{effect}: the effect equals {limit}, and no number of items would decide it."
    return (
        f"{effect}: {limit} is within the interval, and about {needed} {kind} would decide it at this effect "
        f"and rate of flips ({found.n_clusters} were measured)."
    )


def group_numbers(clusters: Sequence[str]) -> NDArray[np.int32]:
    """Clusters as numbers, [items]."""
    _, groups = np.unique(np.asarray(clusters, dtype=np.str_), return_inverse=True)
    return groups.astype(np.int32)
