"""Which option each unit gets: the least estimated KL of all within a budget of floating weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from quantflow.remedies.options import Option

Scores = Mapping[str, Mapping[Option, float]]
"""Full name of a unit → option → its estimated KL, nats per token, with all else lossless."""


Sizes = Mapping[str, tuple[int, int]]


class Point(NamedTuple):
    """An option of a unit.

    Attributes:
        cost: In weights that are multiplied in floating point.
        kl: Estimated, nats per token.
        option: The option.
    """

    cost: float
    kl: float
    option: Option


@dataclass(frozen=True)
class Rule:
    """A way to choose among the options of every unit.

    Attributes:
        name: As it is called in reports.
        allows: Whether an option may be taken.
    """

    name: str
    allows: Callable[[Option], bool]


def choose(scores: Scores, sizes: Sizes, budget: float, rule: Rule) -> dict[str, Option]:
    """Spend a budget of floating weights where it lowers the estimated KL most for each of them.

    Every unit's options are brought down to those that no mix of others beats (the lower convex hull of KL
    over cost); then the steps of all units are taken in the order of what they gain for their cost. That is
    the optimum but for the last steps that do not fit (Everett, 1963), and needs no solver.

    Args:
        scores: What every option does.
        sizes: Full name of a unit → outputs of all its linears, and inputs: what options cost hangs on them.
        budget: Weights that may be in floating point.
        rule: Which options count.

    Returns:
        Unit → option.
    """
    chosen: dict[str, Option] = {}
    steps: list[tuple[float, str, float, Option]] = []
    spent = 0.0
    for unit, own in scores.items():
        points = [
            Point(option.cost(*sizes[unit]), kl, option) for option, kl in own.items() if rule.allows(option)
        ]
        hull = _hull(points)
        chosen[unit] = hull[0].option
        spent += hull[0].cost
        for before, after in pairwise(hull):
            steps.append((_gain(before, after), unit, after.cost - before.cost, after.option))
    full: set[str] = set()
    # A hull's steps gain less and less, so that those of one unit come in order.
    for _, unit, cost, option in sorted(steps, key=lambda step: (-step[0], step[1], step[2])):
        if unit in full:
            continue
        if spent + cost > budget:
            full.add(unit)
            continue
        chosen[unit] = option
        spent += cost
    return chosen


def fixed(scores: Scores, sizes: Sizes, budget: float, wanted: Mapping[str, Option]) -> dict[str, Option]:
    """A rule that looks at no score, with as many channels less as the budget takes.

    A unit that has not as many channels, or whose input cannot be smoothed, gets the nearest that it has.

    Args:
        scores: Options that every unit has.
        sizes: As in `choose`.
        budget: As in `choose`.
        wanted: Full name of a unit → the option that the rule gives it.
    """
    counts = sorted({option.channels for own in scores.values() for option in own}, reverse=True)
    for twice in (True, False):
        for count in counts:
            chosen = {unit: _nearest(own, wanted[unit], count, twice=twice) for unit, own in scores.items()}
            if sum(option.cost(*sizes[unit]) for unit, option in chosen.items()) <= budget:
                return chosen
    return {unit: _nearest(own, wanted[unit], 0, twice=False) for unit, own in scores.items()}


def _nearest(own: Mapping[Option, float], wanted: Option, most: int, *, twice: bool) -> Option:
    """What a unit has that is nearest to an option, with so many channels at most, in two products or one."""
    if wanted.twice and twice and wanted in own:
        return wanted
    exponents = {option.exponent for option in own}
    exponent = wanted.exponent if wanted.exponent in exponents else 0.0
    count = max(option.channels for option in own if option.channels <= min(wanted.channels, most))
    return Option(exponent, count, wanted.range)


def _hull(points: Sequence[Point]) -> list[Point]:
    """Points by cost, each better than those that cost less, with gains per cost that only fall."""
    hull: list[Point] = []
    for point in sorted(points, key=lambda point: (point.cost, point.kl)):
        if hull and point.kl >= hull[-1].kl:
            continue
        while len(hull) > 1 and _gain(hull[-2], hull[-1]) <= _gain(hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _gain(before: Point, after: Point) -> float:
    return (before.kl - after.kl) / (after.cost - before.cost)
