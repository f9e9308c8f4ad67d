"""How a search decides: whether a candidate holds with room, and what to spare next. Pure functions."""

import math
from collections.abc import Sequence

from quantflow.gate.result import CriterionResult
from quantflow.gate.verdict import Verdict
from quantflow.sensitivity.assignment import RoundCriterion
from quantflow.sensitivity.frontier import Point

# A criterion passes if its interval's upper end, one half-width from the estimate, is inside the margin. On
# as many other documents the estimate differs by the spread of a difference, √2 times that of either: with
# so many half-widths to the margin 95 of 100 such evaluations pass.
HALF_WIDTHS = 1 + math.sqrt(2)


def with_room(result: CriterionResult) -> RoundCriterion:
    """A criterion of the gate on the selection documents, and whether it would hold on others.

    Every delta is a loss. A slice of few documents is told by its interval, wide as that is; the gate itself
    may find the evaluation documents too few for a verdict.
    """
    bound = None
    if result.delta is not None and result.ci_high is not None:
        bound = result.delta + HALF_WIDTHS * (result.ci_high - result.delta)
    return RoundCriterion(
        name=result.name,
        metric=result.metric,
        slice=result.slice,
        delta=result.delta,
        ci_low=result.ci_low,
        ci_high=result.ci_high,
        bound=bound,
        margin=result.margin,
        verdict=result.verdict,
        holds=result.verdict is not Verdict.ERROR and bound is not None and bound <= result.margin,
    )


def strain(criteria: Sequence[RoundCriterion]) -> float:
    """How many times its margin the worst criterion's bound is: at most 1 where all hold."""
    return max(map(_strain, criteria), default=0.0)


def _strain(criterion: RoundCriterion) -> float:
    if criterion.bound is None:
        return math.inf
    if criterion.margin <= 0:
        return 0.0 if criterion.bound <= 0 else math.inf
    return criterion.bound / criterion.margin


def next_point(points: Sequence[Point], current: int, strained: float) -> int | None:
    """The point to try next; None where there is none.

    What is measured goes about with the sum of the units' KL: the point is the first at which that sum is
    as much smaller as the worst criterion has to become, and at least one further.

    Args:
        points: Those of the frontier that are allowed.
        current: The point tried last.
        strained: `strain` of it.
    """
    if current + 1 >= len(points):
        return None
    wanted = points[current].kl / max(strained, 1.0)
    ahead = range(current + 1, len(points))
    return next((index for index in ahead if points[index].kl <= wanted), len(points) - 1)
