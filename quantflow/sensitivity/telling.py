"""A search in words: its rounds as events, and the reason for what became of each unit."""

from collections.abc import Sequence

from quantflow.gate.result import EVERYTHING
from quantflow.pipeline.events import Reporter
from quantflow.sensitivity.assignment import RoundCriterion, StoppedBy
from quantflow.sensitivity.choosing import SearchParams
from quantflow.sensitivity.decisions import FORCED
from quantflow.sensitivity.frontier import Point
from quantflow.sensitivity.ladder import UnitLadder
from quantflow.sensitivity.rounds import Round

WHY_STOPPED: dict[StoppedBy, str] = {
    "holds": "the criteria hold",
    "max_spared": "no more than sensitivity.max_spared may be spared",
    "max_rounds": "sensitivity.max_rounds is reached",
    "time_limit": "sensitivity.time_limit is reached",
    "nothing_left": "no unit that is left takes anything away",
}


def added_units(
    units: Sequence[UnitLadder], points: Sequence[Point], rounds: Sequence[Round], number: int
) -> tuple[str, ...]:
    """Units that a round spared, or spared further, beyond the round before, the best first."""
    if number == 0:
        return ()
    before, after = rounds[number - 1].point, rounds[number].point
    steps = (point.step for point in points[before + 1 : after + 1])
    return tuple(dict.fromkeys(units[step.index].unit for step in steps if step is not None))


def tell_round(
    params: SearchParams, number: int, done: Round, added: Sequence[str], reporter: Reporter
) -> None:
    """One event of a round."""
    missed = [_name(criterion) for criterion in done.criteria if not criterion.holds]
    figures = "; ".join(map(_figure, done.criteria))
    mix = done.mix
    outcome = "all hold with room" if not missed else f"{' and '.join(missed)} not within reach"
    reporter.event(
        "search-round",
        f"Round {number} of the search for {params.choosing.assemble.name}, on the selection documents: "
        f"{mix.units} units spared ({100 * mix.spared:.1f} % of the weights); {figures}: {outcome}.",
        artifact=params.choosing.assemble.name,
        round=number,
        added=list(added),
        spared=mix.spared,
        kl=mix.kl,
        sum_of_parts=mix.sum_of_parts,
        bytes=mix.bytes,
        holds=done.holds,
    )


def tell_goal_missed(
    params: SearchParams, rounds: Sequence[Round], best: int, stopped: StoppedBy, reporter: Reporter
) -> None:
    """The event that no candidate holds."""
    name, mix = params.choosing.assemble.name, rounds[best].mix
    reporter.event(
        "search-goal-missed",
        f"No candidate for {name} holds the gate's criteria with room on the selection documents, and "
        f"{WHY_STOPPED[stopped]}: the best, of round {best} with {mix.units} units spared, goes to the gate.",
        artifact=name,
        stopped_by=stopped,
        best_round=best,
        strain=rounds[best].strain if rounds[best].strain != float("inf") else None,
    )


def search_reasons(
    units: Sequence[UnitLadder], points: Sequence[Point], rounds: Sequence[Round], best: int
) -> dict[str, str]:
    """Why each unit has the precision that it has in the best round."""
    end = ", and the criteria hold." if rounds[best].holds else "."
    told = {
        unit.unit: FORCED
        if len(unit.rungs) == 1
        else f"Quantized: its KL of {unit.own.kl:.3g} is less per weight than that of what is spared{end}"
        for unit in units
    }
    costs = {unit.unit: unit.own.kl for unit in units}
    # Rounds only ever add: what one of them spared is spared in all later ones.
    for number in range(1, best + 1):
        for name in added_units(units, points, rounds, number):
            told[name] = (
                f"Spared in round {number}: its KL of {costs[name]:.3g} was the most per weight of what was "
                "left."
            )
    return told


def _figure(criterion: RoundCriterion) -> str:
    """`kl_mean 0.0523, up to 0.0561 of 0.05`."""
    name = _name(criterion)
    if criterion.delta is None or criterion.bound is None:
        return f"{name} not measurable"
    if criterion.metric == "perplexity":
        return (
            f"{name} {100 * criterion.delta:+.2f} %, up to {100 * criterion.bound:+.2f} % "
            f"of {100 * criterion.margin:.2f} %"
        )
    return f"{name} {criterion.delta:.4g}, up to {criterion.bound:.4g} of {criterion.margin:.4g}"


def _name(criterion: RoundCriterion) -> str:
    return criterion.metric if criterion.slice == EVERYTHING else f"{criterion.metric} of {criterion.slice}"
