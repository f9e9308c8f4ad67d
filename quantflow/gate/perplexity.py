"""The criterion `perplexity`: its relative increase over the baseline."""

import math

import numpy as np

from quantflow.gate.decide import FIXED_LEVEL, Criterion, decide, error, not_finite, nothing
from quantflow.gate.result import CriterionResult
from quantflow.gate.statistics import ratio_estimate
from quantflow.measure.measurement import Samples


def _relative_increase(delta_nll: float) -> float:
    """exp(Δ) − 1, infinite rather than an error where it is no longer a float."""
    with np.errstate(over="ignore"):
        return float(np.expm1(delta_nll))


PERPLEXITY = Criterion(
    name="perplexity",
    metric="perplexity",
    effect="Perplexity changes by",
    show=lambda x: f"{100 * x:+.4g} %",
    to_delta=_relative_increase,
    from_delta=math.log1p,
)


def perplexity_criterion(
    artifact: str,
    baseline: Samples,
    measured: Samples,
    max_increase: float,
    *,
    level: float = FIXED_LEVEL,
) -> CriterionResult:
    """Judge the relative increase of perplexity, exp(Σ ΔNLL / Σ tokens) − 1, paired by position.

    Args:
        artifact: Name of the artifact.
        baseline: Samples of the lossless model.
        measured: Samples of the artifact at the same positions.
        max_increase: Margin, a fraction.
        level: One-sided probability with which either bound may err.
    """
    if measured.nll.size == 0:
        return nothing(artifact, PERPLEXITY, max_increase)
    before = baseline.nll.astype(np.float64)
    after = measured.nll.astype(np.float64)
    for whose, nll in (("baseline", before), ("artifact", after)):
        problem = not_finite(f"The {whose}'s loss", nll)
        if problem is not None:
            return error(artifact, PERPLEXITY, max_increase, problem)
    with np.errstate(over="ignore"):
        perplexities = float(np.exp(before.mean())), float(np.exp(after.mean()))
    if not np.isfinite(perplexities).all():
        return error(artifact, PERPLEXITY, max_increase, "The perplexity is too large to be a number.")
    estimate = ratio_estimate(measured.document, after - before)
    return decide(
        artifact,
        PERPLEXITY,
        estimate,
        max_increase,
        baseline=perplexities[0],
        value=perplexities[1],
        level=level,
    )
