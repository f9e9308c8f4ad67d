"""From an estimate with its interval, and a margin, to a verdict with its reason: one rule for all criteria.

Pass where the bad end of the interval is inside the margin, fail where its good end is outside, else
inconclusive (docs/decisions/0005).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quantflow.data.documents import MIN_DOCUMENTS
from quantflow.gate.result import CriterionResult
from quantflow.gate.sequential import at_level
from quantflow.gate.statistics import (
    ONE_SIDED_LEVEL,
    RatioEstimate,
    detectable_change,
    fail_p,
    needed_clusters,
)
from quantflow.gate.verdict import Verdict

FIXED_LEVEL = 1 - ONE_SIDED_LEVEL
"""Of one test of one sample."""


def same(value: float) -> float:
    """A scale that is the estimate's own."""
    return value


@dataclass(frozen=True)
class Criterion:
    """What distinguishes one criterion from another.

    Attributes:
        name: As in the recipe.
        metric: As in the report.
        effect: Beginning of the sentence that states the effect.
        show: Writes a figure on delta's scale.
        to_delta: From the estimate's scale to delta's; increasing.
        from_delta: Its inverse, for the margin.
    """

    name: str
    metric: str
    effect: str
    show: Callable[[float], str]
    to_delta: Callable[[float], float] = same
    from_delta: Callable[[float], float] = same


def error(artifact: str, criterion: Criterion, margin: float, reason: str) -> CriterionResult:
    """The criterion where its samples cannot be judged."""
    return _without_figures(artifact, criterion, margin, reason, Verdict.ERROR)


def nothing(artifact: str, criterion: Criterion, margin: float) -> CriterionResult:
    """The criterion where there is no sample."""
    reason = "No position was scored, so there is nothing to judge."
    return _without_figures(artifact, criterion, margin, reason, Verdict.INCONCLUSIVE)


def not_finite(whose: str, values: NDArray[np.float64]) -> str | None:
    """Why values cannot be judged; None where all are numbers.

    Args:
        whose: What is not finite: `The artifact's loss`.
        values: [positions].
    """
    bad = int(np.count_nonzero(~np.isfinite(values)))
    return f"{whose} is not a finite number at {bad} of {values.size} positions." if bad else None


def decide(
    artifact: str,
    criterion: Criterion,
    estimate: RatioEstimate,
    margin: float,
    *,
    value: float,
    baseline: float | None = None,
    needed: int | None = None,
    level: float = FIXED_LEVEL,
    bounds: RatioEstimate | None = None,
) -> CriterionResult:
    """Hold an estimate against a margin.

    Args:
        artifact: Name of the artifact.
        criterion: Which criterion.
        estimate: The effect, on the estimate's own scale.
        margin: Largest acceptable delta.
        value: The artifact's value of the metric, for the reader.
        baseline: The baseline's.
        needed: Documents that would decide, where they are found in another way.
        level: One-sided probability with which either bound may err: less where this is one look of several.
            The interval shown is the 90 % one in any case.
        bounds: The estimate with bounds of that probability, where they are found in another way.
    """
    if bounds is None:
        bounds = estimate if level == FIXED_LEVEL else at_level(estimate, level)
    lower, upper = criterion.to_delta(bounds.ci_low), criterion.to_delta(bounds.ci_high)
    delta = criterion.to_delta(estimate.value)
    low, high = criterion.to_delta(estimate.ci_low), criterion.to_delta(estimate.ci_high)
    few = estimate.n_clusters < MIN_DOCUMENTS
    if few:
        verdict = Verdict.INCONCLUSIVE
    elif upper < margin:
        verdict = Verdict.PASS
    elif lower > margin:
        verdict = Verdict.FAIL
    else:
        verdict = Verdict.INCONCLUSIVE
    if verdict is not Verdict.INCONCLUSIVE:
        needed = None
    elif needed is None:
        needed = needed_clusters(bounds, criterion.from_delta(margin))
    detectable = detectable_change(estimate)
    return CriterionResult(
        artifact=artifact,
        name=criterion.name,
        metric=criterion.metric,
        baseline=baseline,
        value=value,
        delta=delta,
        ci_low=low if math.isfinite(estimate.ci_low) else None,
        ci_high=high if math.isfinite(high) else None,
        margin=margin,
        n=estimate.n,
        n_clusters=estimate.n_clusters,
        verdict=verdict,
        reason=_reason(criterion, bounds, margin, verdict, needed, level),
        needed_clusters=needed,
        detectable=None if detectable is None else criterion.to_delta(detectable),
        p_fail=None if few else fail_p(estimate, criterion.from_delta(margin)),
    )


def _without_figures(
    artifact: str, criterion: Criterion, margin: float, reason: str, verdict: Verdict
) -> CriterionResult:
    return CriterionResult(
        artifact=artifact,
        name=criterion.name,
        metric=criterion.metric,
        margin=margin,
        verdict=verdict,
        reason=reason,
    )


def _reason(
    criterion: Criterion,
    estimate: RatioEstimate,
    margin: float,
    verdict: Verdict,
    needed: int | None,
    level: float,
) -> str:
    clusters = estimate.n_clusters

    def show(value: float) -> str:
        return criterion.show(criterion.to_delta(value))

    effect = f"{criterion.effect} {show(estimate.value)}"
    if math.isfinite(estimate.ci_high):
        confidence = f"{100 * (1 - 2 * level):.3g}"
        effect += f" ({confidence} % interval {show(estimate.ci_low)} to {show(estimate.ci_high)})"
    elif math.isfinite(estimate.ci_low):
        effect += f" ({show(estimate.ci_low)} at least; these documents are too few for an upper bound)"
    limit = f"the margin of {criterion.show(margin)}"
    if verdict is Verdict.PASS:
        return f"{effect}: even the upper end is inside {limit}."
    if verdict is Verdict.FAIL:
        return f"{effect}: even the lower end is outside {limit}."
    if clusters < MIN_DOCUMENTS:
        more = f", about {needed} at this effect and spread" if needed and needed > MIN_DOCUMENTS else ""
        return (
            f"{effect}, but {clusters} documents are too few to judge {limit} on: "
            f"at least {MIN_DOCUMENTS} are needed{more}."
        )
    if needed is None:
        return f"{effect}: the effect equals {limit}, and no number of documents would decide it."
    return (
        f"{effect}: {limit} is within the interval, and about {needed} documents would decide it "
        f"at this effect and spread ({clusters} were measured)."
    )
