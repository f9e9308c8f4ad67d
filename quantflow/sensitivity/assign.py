"""Which unit gets which precision: pure functions from ladders to a choice.

A choice is one rung for each unit, in their order. KL is taken to add up over units, which it nearly does;
the mix is measured as a whole afterwards.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from quantflow.errors import QuantizationError
from quantflow.sensitivity.ladder import Rung, UnitLadder
from quantflow.sensitivity.silent_library import silent_library

Choice = tuple[int, ...]

# To spare everything has to be worth a thousandth of the total KL: units that take away nothing that could be
# measured are not spared merely because there is room.
WORTH = 1e-3
# HiGHS stops at an absolute gap of 1e-6: the objective is scaled so that this is a 10,000 millionth of it.
OBJECTIVE = 1e4
GAP = 1e-7


@dataclass(frozen=True)
class Limits:
    """What a choice has to stay within; None is no limit.

    Attributes:
        spared: Weights that may count as spared.
        bytes: Of all units' weights.
    """

    spared: int | None = None
    bytes: int | None = None


def nothing_spared(units: Sequence[UnitLadder]) -> Choice:
    """Every unit in the artifact's own precision."""
    return (0,) * len(units)


def by_budget(units: Sequence[UnitLadder], limits: Limits) -> Choice:
    """The least total KL within the limits: a multiple-choice knapsack, solved to the optimum by HiGHS.

    Of choices that are equally good one that spares less is taken, and units that are alike are spared in
    the order of the model.

    Raises:
        QuantizationError: The limits cannot be kept even with nothing spared.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    least = sum(min(rung.bytes for rung in unit.rungs) for unit in units)
    if limits.bytes is not None and least > limits.bytes:
        raise QuantizationError(
            f"the units' weights are {least} bytes in their smallest precisions, and {limits.bytes} are "
            "allowed",
            hint="Allow more bytes, or choose fewer bits or larger groups.",
        )
    total = total_kl(units, nothing_spared(units))
    if total == 0:
        return nothing_spared(units)
    upper = sum(unit.weights for unit in units)
    places = [(index, rung) for index, unit in enumerate(units) for rung in range(1, len(unit.rungs))]
    if not places:
        return nothing_spared(units)
    steps = [(units[index].own, units[index].rungs[rung]) for index, rung in places]
    value = np.array([(to.kl - own.kl) / total + WORTH * to.spared / upper for own, to in steps])
    rows = [np.array([float(index == own) for index, _ in places]) for own in range(len(units))]
    ends = [1.0] * len(units)
    for limit, costs, at_least in _costs(units, limits, steps):
        row, end = _whole(costs, limit - at_least)
        rows.append(row)
        ends.append(end)
    with silent_library():
        found = milp(
            OBJECTIVE * value,
            integrality=np.ones(len(places), dtype=np.int64),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(np.array(rows), -np.inf, np.array(ends)),
            options={"mip_rel_gap": GAP},
        )
    if found.x is None:
        raise QuantizationError(f"no assignment was found within the limits: {found.message}")
    chosen = dict.fromkeys(range(len(units)), 0)
    chosen |= {index: rung for (index, rung), taken in zip(places, found.x, strict=True) if taken > 0.5}
    return _in_order(units, tuple(chosen.values()))


def by_threshold(units: Sequence[UnitLadder], threshold: float) -> Choice:
    """Every unit on its first rung whose KL is not above the threshold, nats per token."""
    return tuple(
        next((place for place, rung in enumerate(unit.rungs) if rung.kl <= threshold), len(unit.rungs) - 1)
        for unit in units
    )


def top_k(units: Sequence[UnitLadder], count: int) -> Choice:
    """The units that cost most in the source's dtype; of equal ones the first in the order of the model."""
    free = [index for index, unit in enumerate(units) if len(unit.rungs) > 1]
    worst = set(sorted(free, key=lambda index: -units[index].own.kl)[:count])
    return tuple(len(unit.rungs) - 1 if index in worst else 0 for index, unit in enumerate(units))


def chosen_rungs(units: Sequence[UnitLadder], choice: Choice) -> tuple[Rung, ...]:
    """The rungs of a choice."""
    return tuple(unit.rungs[place] for unit, place in zip(units, choice, strict=True))


def total_kl(units: Sequence[UnitLadder], choice: Choice) -> float:
    """The sum of the units' KL, nats per token."""
    return math.fsum(rung.kl for rung in chosen_rungs(units, choice))


def total_bytes(units: Sequence[UnitLadder], choice: Choice) -> int:
    """Bytes of all units' weights."""
    return sum(rung.bytes for rung in chosen_rungs(units, choice))


def total_spared(units: Sequence[UnitLadder], choice: Choice) -> int:
    """Weights that count as spared."""
    return sum(rung.spared for rung in chosen_rungs(units, choice))


def _costs(
    units: Sequence[UnitLadder], limits: Limits, steps: Sequence[tuple[Rung, Rung]]
) -> list[tuple[int, list[int], int]]:
    """For each limit: it, what each step adds to what it limits, and what that is without any step."""
    first = nothing_spared(units)
    costs = []
    if limits.spared is not None:
        costs.append(
            (limits.spared, [to.spared - own.spared for own, to in steps], total_spared(units, first))
        )
    if limits.bytes is not None:
        costs.append((limits.bytes, [to.bytes - own.bytes for own, to in steps], total_bytes(units, first)))
    return costs


def _whole(costs: Sequence[int], room: int) -> tuple[NDArray[np.float64], float]:
    """A constraint in whole numbers as small as they can be, and its end between two of them.

    The solver's tolerance can then neither let it exceed the limit nor keep it from using all of it.
    """
    step = math.gcd(*costs) or 1
    return np.array([cost // step for cost in costs], dtype=np.float64), room // step + 0.5


def _in_order(units: Sequence[UnitLadder], choice: Choice) -> Choice:
    """Of units that are alike, the first ones are on the lowest rungs."""

    def kind(index: int) -> str:
        return repr((units[index].weights, units[index].rungs))

    places = dict.fromkeys(range(len(units)), 0)
    for _, alike in groupby(sorted(range(len(units)), key=kind), key=kind):
        indices = list(alike)
        places |= dict(zip(indices, sorted((choice[i] for i in indices), reverse=True), strict=True))
    return tuple(places.values())
