"""What is chosen by scores, as a function of them: for finding out which scores decide."""

from collections.abc import Sequence
from dataclasses import replace

from quantflow.sensitivity.assign import (
    Choice,
    Limits,
    by_budget,
    by_threshold,
    nothing_spared,
    top_k,
    total_bytes,
)
from quantflow.sensitivity.choose import spared_limit
from quantflow.sensitivity.ladder import UnitLadder
from quantflow.sensitivity.params import ChoiceParams
from quantflow.sensitivity.settle import Choose, Scores


def choice_by(params: ChoiceParams, units: Sequence[UnitLadder], other_bytes: int = 0) -> Choose:
    """The assignment of an artifact as a function of the scores.

    Args:
        params: How it chooses.
        units: Its units, with whatever scores.
        other_bytes: Of its tensors beside the units' weights, which `max_bytes` counts as well.
    """
    weights = sum(unit.weights for unit in units)
    allowed = [
        *([] if params.effective_bits is None else [int(params.effective_bits * weights / 8)]),
        *([] if params.max_bytes is None else [params.max_bytes - other_bytes]),
    ]
    limits = Limits(
        spared=None if params.max_spared is None else spared_limit(weights, params.max_spared),
        # Fewer than can be had are refused by the stage that assigns; here they decide nothing.
        bytes=max(min(allowed), total_bytes(units, nothing_spared(units))) if allowed else None,
    )

    def choose(scores: Scores) -> Choice:
        scored = [_with_scores(unit, scores) for unit in units]
        if params.threshold is not None:
            return by_threshold(scored, params.threshold)
        if params.top_k is not None:
            return top_k(scored, params.top_k)
        return by_budget(scored, limits)

    return choose


def _with_scores(unit: UnitLadder, scores: Scores) -> UnitLadder:
    rungs = tuple(
        replace(rung, kl=max(0.0, scores.get((unit.unit, rung.precision), rung.kl))) for rung in unit.rungs
    )
    return replace(unit, rungs=rungs)
