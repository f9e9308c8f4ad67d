"""Criteria judged while the evidence comes in: the first look that decides one decides it for good."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from quantflow.gate.kl import kl_criterion
from quantflow.gate.perplexity import perplexity_criterion
from quantflow.gate.result import CriterionResult
from quantflow.gate.sequential import Saving, look_levels
from quantflow.gate.slices import part_of
from quantflow.gate.verdict import Verdict
from quantflow.measure.measurement import Samples

Judge = Callable[[Samples, Samples, float], CriterionResult]
"""Judges the baseline's and an artifact's samples with bounds that err with a one-sided probability each."""


class SequentialMargins(BaseModel):
    """What is judged while documents come in.

    Attributes:
        artifact: Name of the artifact in the recipe.
        max_increase: Largest acceptable relative increase of perplexity, a fraction.
        max_mean_kl: Largest acceptable mean KL(baseline ‖ artifact), nats per token.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    artifact: str
    max_increase: float = Field(ge=0, allow_inf_nan=False)
    max_mean_kl: float = Field(ge=0, allow_inf_nan=False)


@dataclass(frozen=True)
class Looks:
    """Looks that were taken, of those that could be.

    Attributes:
        sizes: Documents at every look that could be taken, ascending; the last is all there are.
        ends: Scored positions that had come in at each look that was taken, ascending.
    """

    sizes: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def saving(self) -> Saving:
        """What stopping early saved."""
        taken = len(self.ends)
        return Saving(measured=self.sizes[taken - 1], available=self.sizes[-1], looks=taken)


def judge_looks(
    margins: SequentialMargins, baseline: Samples, measured: Samples, looks: Looks
) -> tuple[CriterionResult, CriterionResult]:
    """Perplexity and mean KL, group-sequentially.

    Each look tests at its own level, by Lan and DeMets (docs/decisions/0044), so that all of them together
    err in 5 % of cases. A criterion keeps what the first look that decided it said.

    Args:
        margins: What may be lost.
        baseline: Samples of the lossless model, in the order in which documents came in.
        measured: Samples of the artifact at the same positions, with the exact KL.
        looks: Which came in when.

    Returns:
        Perplexity's result and KL's; inconclusive where none of the looks taken decided it.
    """
    name = margins.artifact

    def perplexity(before: Samples, after: Samples, level: float) -> CriterionResult:
        return perplexity_criterion(name, before, after, margins.max_increase, level=level)

    def kl(_: Samples, after: Samples, level: float) -> CriterionResult:
        return kl_criterion(name, after, margins.max_mean_kl, level=level)

    return (
        _first_decided(perplexity, baseline, measured, looks),
        _first_decided(kl, baseline, measured, looks),
    )


def all_decided(results: Sequence[CriterionResult]) -> bool:
    """Whether nothing more has to be measured."""
    return all(result.verdict is not Verdict.INCONCLUSIVE for result in results)


def _first_decided(judge: Judge, baseline: Samples, measured: Samples, looks: Looks) -> CriterionResult:
    levels = look_levels([size / looks.sizes[-1] for size in looks.sizes])
    position = np.arange(measured.nll.size)
    for number, end in enumerate(looks.ends):
        inside: NDArray[np.bool_] = position < end
        result = judge(part_of(baseline, inside), part_of(measured, inside), levels[number])
        if result.verdict is not Verdict.INCONCLUSIVE:
            break
    when = (
        f" Look {number + 1} of {len(looks.sizes)}, after {looks.sizes[number]} of {looks.sizes[-1]} "
        f"documents, each bound at {100 * levels[number]:.2g} %."
    )
    return result.model_copy(update={"reason": result.reason + when})
