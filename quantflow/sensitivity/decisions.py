"""A choice, told: every unit's decision with its reason, the frontier, and what the next unit would buy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quantflow.sensitivity.assign import (
    Choice,
    nothing_spared,
    total_bytes,
    total_kl,
    total_spared,
)
from quantflow.sensitivity.assignment import Decision, FrontierPoint, MixKl, NextUnit
from quantflow.sensitivity.choosing import AssignParams
from quantflow.sensitivity.frontier import frontier, next_step
from quantflow.sensitivity.ladder import UnitLadder

ROLLED_BACK = "Quantized: sparing it was undone, as the mix measured worse than nothing spared."
FORCED = "Quantized because sensitivity.force names it."


@dataclass(frozen=True)
class Sizes:
    """What turns figures of the units into figures of the artifact.

    Attributes:
        weights: Weights that the artifact would quantize if nothing were spared.
        other_bytes: Of the artifact's tensors, without those of the units' weights.
    """

    weights: int
    other_bytes: int

    def share(self, spared: int) -> float:
        """Share of the weights that is spared."""
        return spared / self.weights if self.weights else 0.0


def decisions(
    units: Sequence[UnitLadder], choice: Choice, reasons: Mapping[str, str]
) -> tuple[Decision, ...]:
    """What became of every unit.

    Args:
        units: Their ladders.
        choice: What was chosen.
        reasons: Unit → why it has the precision that it has.
    """
    return tuple(
        Decision(
            unit=unit.unit,
            precision=unit.rungs[place].precision,
            spared=place > 0,
            reason=reasons[unit.unit],
            kl_quantized=unit.own.kl,
            kl=unit.rungs[place].kl,
            weights=unit.weights,
            bytes_quantized=unit.own.bytes,
            bytes=unit.rungs[place].bytes,
        )
        for unit, place in zip(units, choice, strict=True)
    )


def reasons(params: AssignParams, units: Sequence[UnitLadder], choice: Choice) -> dict[str, str]:
    """Why each unit has the precision that a policy chose."""
    order = sorted(units, key=lambda unit: -unit.own.kl)
    ranks = {unit.unit: rank for rank, unit in enumerate(order, start=1)}
    last = {len(unit.rungs) - 1 for unit in units}
    told = {}
    for unit, place in zip(units, choice, strict=True):
        kl, rank = f"its KL of {unit.own.kl:.3g}", f"rank {ranks[unit.unit]} of {len(units)}"
        if len(unit.rungs) == 1:
            told[unit.unit] = FORCED
        elif params.policy == "threshold":
            side = "above" if unit.own.kl > (params.threshold or 0.0) else "not above"
            told[unit.unit] = f"{_verb(place)}: {kl} is {side} the threshold of {params.threshold:g}."
        elif params.policy == "top_k":
            told[unit.unit] = f"{_verb(place)}: {kl} is {rank}, and the first {params.top_k} are spared."
        elif place == 0:
            told[unit.unit] = f"Quantized: {kl} is {rank}; within {_limits(params)} others take away more."
        else:
            kept = "" if place in last else f", and leaves {unit.rungs[place].kl:.3g}"
            told[unit.unit] = (
                f"Spared: {kl} is {rank}; within {_limits(params)} nothing else takes away more{kept}."
            )
    return told


def _verb(place: int) -> str:
    return "Spared" if place else "Quantized"


def _limits(params: AssignParams) -> str:
    limits = [
        *([f"{100 * params.max_spared:g} % of the weights"] if params.max_spared is not None else []),
        *([f"{params.effective_bits:g} bits per weight"] if params.effective_bits is not None else []),
        *([f"{params.max_bytes} bytes"] if params.max_bytes is not None else []),
    ]
    return " and ".join(limits) or "the whole model"


def told_frontier(units: Sequence[UnitLadder], sizes: Sizes) -> tuple[FrontierPoint, ...]:
    """The frontier in figures of the artifact."""
    points = []
    for point in frontier(units):
        unit = "" if point.step is None else units[point.step.index].unit
        precision = "" if point.step is None else units[point.step.index].rungs[point.step.rung].precision
        points.append(
            FrontierPoint(
                unit=unit,
                precision=precision,
                units=sum(place > 0 for place in point.choice),
                bytes=sizes.other_bytes + point.bytes,
                spared=sizes.share(point.spared),
                kl=point.kl,
            )
        )
    return tuple(points)


def next_unit(units: Sequence[UnitLadder], choice: Choice) -> NextUnit | None:
    """What one more unit would buy beyond a choice."""
    step = next_step(units, choice)
    if step is None:
        return None
    unit = units[step.index]
    return NextUnit(unit=unit.unit, precision=unit.rungs[step.rung].precision, kl=step.kl, bytes=step.bytes)


def mix_kl(units: Sequence[UnitLadder], choice: Choice, sizes: Sizes, *, bytes: int, kl: float) -> MixKl:
    """What a mix measured as, beside the sum of its parts.

    Args:
        units: The units' ladders.
        choice: What was written.
        sizes: Of the artifact.
        bytes: Of its files.
        kl: Measured mean KL, nats per token.
    """
    parts = total_kl(units, choice)
    return MixKl(
        units=sum(place > 0 for place in choice),
        spared=sizes.share(total_spared(units, choice)),
        bytes=bytes,
        kl=kl,
        sum_of_parts=parts,
        additivity_ratio=kl / parts if parts > 0 else None,
    )


def other_bytes(units: Sequence[UnitLadder], weight_bytes: int) -> int:
    """Bytes of an artifact's tensors beside the units' weights, from those with nothing spared."""
    return weight_bytes - total_bytes(units, nothing_spared(units))
