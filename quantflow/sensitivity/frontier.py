"""KL against size: which unit to spare next, and what sparing one after the other comes to."""

from collections.abc import Sequence
from dataclasses import dataclass

from quantflow.sensitivity.assign import (
    Choice,
    nothing_spared,
    total_bytes,
    total_kl,
    total_spared,
)
from quantflow.sensitivity.ladder import UnitLadder


@dataclass(frozen=True)
class Step:
    """One unit that goes down its ladder.

    Attributes:
        index: The unit's place among all.
        rung: The rung that it comes to.
        kl: What that takes away, nats per token.
        spared: Weights that count as spared besides.
        bytes: What its weights take besides.
    """

    index: int
    rung: int
    kl: float
    spared: int
    bytes: int

    @property
    def worth(self) -> float:
        """KL taken away per weight."""
        return self.kl / self.spared


@dataclass(frozen=True)
class Point:
    """A choice on the frontier and what it comes to, for all units together.

    Attributes:
        choice: It.
        kl: Sum of the units' KL, nats per token.
        spared: Weights that count as spared.
        bytes: Of the units' weights.
        step: What it has over the point before; None for the first.
    """

    choice: Choice
    kl: float
    spared: int
    bytes: int
    step: Step | None


def frontier(units: Sequence[UnitLadder], most: int | None = None) -> tuple[Point, ...]:
    """From nothing spared on, the step that takes away most KL per weight, then the next, to the last of use.

    Without a limit each point has the least total KL of all choices that spare as many weights: these are the
    corners of the lower convex hull of KL against weights, which a unit's steps are reduced to first.

    Args:
        units: The units' ladders.
        most: Weights that may be spared; a step that would exceed them is left out, and later ones of other
            units may still fit. None is no limit.
    """
    choice, spared, left_out = list(nothing_spared(units)), 0, set[int]()
    points = [_point(units, tuple(choice), None)]
    for step in _order([step for index in range(len(units)) for step in _hull(units[index], index)]):
        if most is not None and (step.index in left_out or spared + step.spared > most):
            left_out.add(step.index)
            continue
        spared += step.spared
        choice[step.index] = step.rung
        points.append(_point(units, tuple(choice), step))
    return tuple(points)


def next_step(units: Sequence[UnitLadder], choice: Choice) -> Step | None:
    """What takes away most KL per weight beyond a choice; None where nothing does."""
    steps = [step for index, unit in enumerate(units) for step in _hull(unit, index, first=choice[index])[:1]]
    return next(iter(_order(steps)), None)


def _order(steps: Sequence[Step]) -> list[Step]:
    """The best first; of equal ones the first in the order of the model."""
    return sorted(steps, key=lambda step: -step.worth)


def _hull(unit: UnitLadder, index: int, first: int = 0) -> list[Step]:
    """A unit's steps from one rung on: each the best there is at its place, and so each worth less."""
    steps, place = list[Step](), first
    while True:
        own = unit.rungs[place]
        ahead = [
            Step(index, rung, own.kl - to.kl, to.spared - own.spared, to.bytes - own.bytes)
            for rung, to in enumerate(unit.rungs)
            if rung > place and to.kl < own.kl
        ]
        if not ahead:
            return steps
        # Of equally good steps the longest: the ones within it are no corners.
        best = max(ahead, key=lambda step: (step.worth, step.rung))
        steps.append(best)
        place = best.rung


def _point(units: Sequence[UnitLadder], choice: Choice, step: Step | None) -> Point:
    return Point(
        choice=choice,
        kl=total_kl(units, choice),
        spared=total_spared(units, choice),
        bytes=total_bytes(units, choice),
        step=step,
    )
