"""A criterion on the parts of the evaluation data that a recipe sets margins for."""

from collections.abc import Callable, Sequence, Set
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from quantflow.gate.params import EACH_SLICE, SliceMargin
from quantflow.gate.result import CriterionResult
from quantflow.gate.verdict import Verdict
from quantflow.measure.measurement import Samples

Judge = Callable[[Samples, Samples, float], CriterionResult]
"""Judges a baseline's and an artifact's samples against a margin."""


def slice_criteria(
    margins: Sequence[SliceMargin],
    slice_of: NDArray[np.str_],
    baseline: Samples,
    measured: Samples,
    judge: Judge,
    known: Sequence[str] = (),
) -> tuple[CriterionResult, ...]:
    """Judge parts of the evaluation data, each as if it were all there is.

    Args:
        margins: What each may lose.
        slice_of: Slice of every position, [positions].
        baseline: Samples of the lossless model.
        measured: Samples of the artifact.
        judge: The criterion.
        known: Slices of the data, whether an evaluation document is of them or not: what "*" stands for has
            them all, and one without a document is not passed over.
    """
    return tuple(
        _judged(margin, slice_of == margin.slice, baseline, measured, judge)
        for margin in _by_name(margins, {*known, *np.unique(slice_of).tolist()})
    )


def _by_name(margins: Sequence[SliceMargin], known: Set[str]) -> list[SliceMargin]:
    named = [margin for margin in margins if margin.slice != EACH_SLICE]
    others = sorted(known - {margin.slice for margin in named})
    each = [margin for margin in margins if margin.slice == EACH_SLICE]
    return named + [margin.model_copy(update={"slice": name}) for margin in each for name in others]


def _judged(
    margin: SliceMargin, inside: NDArray[np.bool_], baseline: Samples, measured: Samples, judge: Judge
) -> CriterionResult:
    result = judge(part_of(baseline, inside), part_of(measured, inside), margin.margin)
    reason = result.reason
    if not inside.any():
        reason = "No evaluation document is of this slice, so there is nothing to judge."
        result = result.model_copy(update={"verdict": Verdict.INCONCLUSIVE})
    update = {"slice": margin.slice, "required": margin.required, "reason": f"{margin.slice}: {reason}"}
    return result.model_copy(update=update)


def part_of(samples: Samples, inside: NDArray[np.bool_] | NDArray[np.int64]) -> Samples:
    """The same at some positions: those that are true, or those at some places in that order."""
    values = {field.name: getattr(samples, field.name) for field in fields(samples)}
    return replace(samples, **{name: of[inside] for name, of in values.items() if of is not None})
