"""Which units' estimates have to be made exact, so that the set of units to spare no longer hangs on them."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from quantflow.pipeline.events import Reporter
from quantflow.sensitivity.measured import Key

Scores = Mapping[Key, float]
Choose = Callable[[Scores], Hashable]
"""Which units are spared, or what precision they get, by their scores; equal if it is the same choice."""

PRIOR_SPREAD = 0.3
"""Standard deviation of the logarithm of exact over estimated KL, before any is known."""
PRIOR_COUNT = 4
"""Exact values that this counts as: a few that happen to agree do not make all estimates certain."""
WIDE, NARROW = 2.0, 0.7
"""Standard deviations. A unit is in doubt if its estimate moved by `WIDE` would change what is chosen, and is
looked at first if `NARROW` would do."""
DECIDING = "Finding the units whose scores decide"
"""What progress is shown as: an assignment takes up to a tenth of a second, and there are hundreds."""
ENOUGH = 4
"""Exact values of a precision from which its own ratio is taken instead of 1."""
SHARE_OF_A_ROUND = 0.5
"""Of what is left to spend: what a round teaches tells the next one where to look."""


@dataclass
class Settling:
    """Scores while they are settled.

    Attributes:
        estimates: Fisher's estimates.
        exact: What has been made exact.
        settled: Whether no estimate in doubt is left.
        rounds: How often units were made exact.
    """

    estimates: Scores
    exact: dict[Key, float] = field(default_factory=dict)
    settled: bool = False
    rounds: int = 0

    def ratio(self, precision: str) -> float:
        """What estimates in a precision are multiplied by, so that they compare with exact values."""
        logs = self._logs(precision)
        return math.exp(float(np.median(logs))) if len(logs) >= ENOUGH else 1.0

    def spread(self, precision: str) -> float:
        """Standard deviation of the logarithm of exact over estimated KL."""
        logs = np.array(self._logs(precision)) - math.log(self.ratio(precision))
        known = float(logs @ logs)
        return math.sqrt((PRIOR_COUNT * PRIOR_SPREAD**2 + known) / (PRIOR_COUNT + len(logs)))

    @property
    def scores(self) -> dict[Key, float]:
        """Exact where they are known, else estimates at the exact ones' scale."""
        scaled = {key: value * self.ratio(key[1]) for key, value in self.estimates.items()}
        return scaled | self.exact

    def _logs(self, precision: str) -> list[float]:
        return [
            math.log(value / self.estimates[key])
            for key, value in self.exact.items()
            if key[1] == precision and value > 0 and self.estimates.get(key, 0) > 0
        ]


def settle(
    estimates: Scores,
    choices: Sequence[Choose],
    measure: Callable[[Sequence[Key]], Scores],
    cost: Callable[[Sequence[Key]], float],
    allowance: float,
    reporter: Reporter,
    known: Scores | None = None,
) -> Settling:
    """Make exact what decides, the most doubtful first, until nothing is in doubt or the allowance is spent.

    Args:
        estimates: Fisher's, of every unit and precision whose exact score is not known.
        choices: What the scores are for: one for each artifact that chooses by them.
        measure: Gives exact scores.
        cost: What that takes, forwards.
        allowance: Forwards that may be spent.
        reporter: Is told of progress.
        known: Exact scores that there are already.
    """
    state = Settling(estimates, dict(known or {}))
    left = allowance
    while doubtful := in_doubt(state, choices, reporter):
        round_of = _affordable(doubtful, cost, left)
        if not round_of:
            return state
        left -= cost(round_of)
        state.exact |= measure(round_of)
        state.rounds += 1
    state.settled = True
    return state


def in_doubt(state: Settling, choices: Sequence[Choose], reporter: Reporter) -> list[Key]:
    """Units whose true score, as far as can be told, may be one that would change a choice; nearest first."""
    scores = state.scores
    now = [choose(scores) for choose in choices]

    def decides(key: Key, deviations: float) -> bool:
        factor = math.exp(deviations * state.spread(key[1]))
        moved = (scores | {key: scores[key] * f} for f in (factor, 1 / factor))
        return any(choose(other) != was for other in moved for choose, was in zip(choices, now, strict=True))

    unknown = [key for key in scores if key not in state.exact and scores[key] > 0]
    open_, near = list[Key](), set[Key]()
    with reporter.track(DECIDING, len(unknown)) as advance:
        for key in unknown:
            if decides(key, WIDE):
                open_.append(key)
                if decides(key, NARROW):
                    near.add(key)
            advance(1)
    return sorted(open_, key=lambda key: (key not in near, -scores[key]))


def _affordable(keys: Iterable[Key], cost: Callable[[Sequence[Key]], float], left: float) -> list[Key]:
    """As many as may be spent on in one round; one at least, if all that is left pays for it."""
    taken: list[Key] = []
    for key in keys:
        price = cost([*taken, key])
        if price <= left * SHARE_OF_A_ROUND or (not taken and price <= left):
            taken.append(key)
    return taken
