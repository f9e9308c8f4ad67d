"""The two criteria of a gate: perplexity's relative increase and the mean KL, each against its margin."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict

from quantflow.data.documents import MIN_DOCUMENTS
from quantflow.gate.statistics import RatioEstimate, needed_clusters, ratio_estimate
from quantflow.gate.verdict import Verdict
from quantflow.inspection.record import near_random_loss
from quantflow.measure.measurement import Samples


class CriterionResult(BaseModel):
    """One criterion's verdict and every figure behind it.

    Attributes:
        artifact: The artifact judged.
        name: The criterion's key in the recipe's gate, `perplexity` or `kl`; `baseline` where it is the
            baseline that nothing can be held against.
        slice: The part of the evaluation data it concerns; `all` for the whole.
        metric: What is measured: `perplexity`, `kl_mean` or `nll` (nats per token).
        baseline: The baseline's value of the metric; None for KL, which is measured against it.
        value: The artifact's value of the metric.
        delta: What is held against the margin: the relative increase of perplexity (fraction), or the KL.
        ci_low: Lower end of delta's 90 % interval, a one-sided 95 % bound; None where there is no interval.
        ci_high: Upper end of delta's 90 % interval, a one-sided 95 % bound.
        margin: Largest acceptable delta. More is worse in both metrics, so an improvement never fails.
        n: Scored positions.
        n_clusters: Documents they come from.
        noise_floor: What the metric says of the baseline against itself run another way, where known.
        verdict: The criterion's verdict.
        required: Whether the artifact's verdict depends on it.
        reason: The verdict in one plain sentence, with its figures.
        needed_clusters: Where inconclusive, documents that would decide at this effect and spread; None where
            no number would (the effect equals the margin) or where it cannot be known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    artifact: str
    name: str
    slice: str = "all"
    metric: str
    baseline: float | None = None
    value: float | None = None
    delta: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    margin: float
    n: int = 0
    n_clusters: int = 0
    noise_floor: float | None = None
    verdict: Verdict
    required: bool = True
    reason: str
    needed_clusters: int | None = None


class GateResult(BaseModel):
    """What the gate says of one artifact.

    Attributes:
        artifact: The artifact judged.
        criteria: Every criterion's result.
        verdict: The worst verdict of the required criteria; inconclusive where there are none.
        reason: The verdict in plain words, from the criteria that decided it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    artifact: str
    criteria: tuple[CriterionResult, ...]
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class _Criterion:
    """What distinguishes one criterion from another.

    Attributes:
        name: As in the recipe.
        metric: As in the report.
        effect: Beginning of the sentence that states the effect.
        show: Writes a figure on delta's scale.
        to_delta: From the estimate's scale (nats per token) to delta's; increasing.
        from_delta: Its inverse, for the margin.
    """

    name: str
    metric: str
    effect: str
    show: Callable[[float], str]
    to_delta: Callable[[float], float]
    from_delta: Callable[[float], float]


def _relative_increase(delta_nll: float) -> float:
    """exp(Δ) − 1, infinite rather than an error where it is no longer a float."""
    with np.errstate(over="ignore"):
        return float(np.expm1(delta_nll))


_PERPLEXITY = _Criterion(
    name="perplexity",
    metric="perplexity",
    effect="Perplexity changes by",
    show=lambda x: f"{100 * x:+.4g} %",
    to_delta=_relative_increase,
    from_delta=math.log1p,
)
_KL = _Criterion(
    name="kl",
    metric="kl_mean",
    effect="Mean KL in nats per token is",
    show=lambda x: f"{x:.4g}",
    to_delta=float,
    from_delta=float,
)


def unjudged(
    artifact: str, reason: str, max_increase: float, max_mean_kl: float
) -> tuple[CriterionResult, ...]:
    """Both criteria as errors, where the samples cannot be compared at all."""
    margins = ((_PERPLEXITY, max_increase), (_KL, max_mean_kl))
    return tuple(_error(artifact, criterion, margin, reason) for criterion, margin in margins)


def baseline_criterion(artifact: str, baseline: Samples, vocab_size: int) -> CriterionResult | None:
    """Whether the baseline reads the evaluation text at all; None where it does, and nothing has to be said.

    Agreement with a model that guesses says nothing: an artifact of one must not pass, however close it
    stays.

    Args:
        artifact: Name of the artifact.
        baseline: Samples of the lossless model.
        vocab_size: Tokens it can choose from.
    """
    limit = near_random_loss(vocab_size)
    loss = float(baseline.nll.astype(np.float64).mean()) if baseline.nll.size else 0.0
    if not loss >= limit:  # a loss that is no number is for the perplexity criterion to name
        return None
    return CriterionResult(
        artifact=artifact,
        name="baseline",
        metric="nll",
        baseline=loss if math.isfinite(loss) else None,
        margin=limit,
        n=int(baseline.nll.size),
        n_clusters=int(np.unique(baseline.document).size),
        verdict=Verdict.INCONCLUSIVE,
        reason=f"The baseline predicts the evaluation text no better than chance ({loss:.2f} nats per "
        f"token, {math.log(vocab_size):.2f} being those of a guess), so that to agree with it says nothing: "
        "the model is broken, or the text is of a kind that it does not know.",
    )


def perplexity_criterion(
    artifact: str, baseline: Samples, measured: Samples, max_increase: float
) -> CriterionResult:
    """Judge the relative increase of perplexity, exp(Σ ΔNLL / Σ tokens) − 1, paired by position.

    Args:
        artifact: Name of the artifact.
        baseline: Samples of the lossless model.
        measured: Samples of the artifact at the same positions.
        max_increase: Margin, a fraction.
    """
    if measured.nll.size == 0:
        return _nothing(artifact, _PERPLEXITY, max_increase)
    before = baseline.nll.astype(np.float64)
    after = measured.nll.astype(np.float64)
    for whose, nll in (("baseline", before), ("artifact", after)):
        if not np.isfinite(nll).all():
            bad = int(np.count_nonzero(~np.isfinite(nll)))
            reason = f"The {whose}'s loss is not a finite number at {bad} of {nll.size} positions."
            return _error(artifact, _PERPLEXITY, max_increase, reason)
    with np.errstate(over="ignore"):
        perplexities = float(np.exp(before.mean())), float(np.exp(after.mean()))
    if not np.isfinite(perplexities).all():
        return _error(artifact, _PERPLEXITY, max_increase, "The perplexity is too large to be a number.")
    estimate = ratio_estimate(measured.document, after - before)
    return _judged(artifact, _PERPLEXITY, estimate, max_increase, *perplexities)


def kl_criterion(artifact: str, measured: Samples, max_mean_kl: float) -> CriterionResult:
    """Judge the mean KL(baseline ‖ artifact) over all scored positions.

    Args:
        artifact: Name of the artifact.
        measured: Samples of the artifact.
        max_mean_kl: Margin, nats per token.
    """
    if measured.kl is None:
        reason = "The measurement holds no KL, so this criterion has nothing to judge."
        return _error(artifact, _KL, max_mean_kl, reason)
    if measured.kl.size == 0:
        return _nothing(artifact, _KL, max_mean_kl)
    if not np.isfinite(measured.kl).all():
        bad = int(np.count_nonzero(~np.isfinite(measured.kl)))
        reason = f"The KL is not a finite number at {bad} of {measured.kl.size} positions."
        return _error(artifact, _KL, max_mean_kl, reason)
    estimate = ratio_estimate(measured.document, measured.kl)
    return _judged(artifact, _KL, estimate, max_mean_kl, None, estimate.value)


def _error(artifact: str, criterion: _Criterion, margin: float, reason: str) -> CriterionResult:
    return CriterionResult(
        artifact=artifact,
        name=criterion.name,
        metric=criterion.metric,
        margin=margin,
        verdict=Verdict.ERROR,
        reason=reason,
    )


def _nothing(artifact: str, criterion: _Criterion, margin: float) -> CriterionResult:
    return CriterionResult(
        artifact=artifact,
        name=criterion.name,
        metric=criterion.metric,
        margin=margin,
        verdict=Verdict.INCONCLUSIVE,
        reason="No position was scored, so there is nothing to judge.",
    )


def _judged(
    artifact: str,
    criterion: _Criterion,
    estimate: RatioEstimate,
    margin: float,
    baseline: float | None,
    value: float,
) -> CriterionResult:
    delta = criterion.to_delta(estimate.value)
    low, high = criterion.to_delta(estimate.ci_low), criterion.to_delta(estimate.ci_high)
    bounded = math.isfinite(high)
    few = estimate.n_clusters < MIN_DOCUMENTS
    if few:
        verdict = Verdict.INCONCLUSIVE
    elif high < margin:
        verdict = Verdict.PASS
    elif low > margin:
        verdict = Verdict.FAIL
    else:
        verdict = Verdict.INCONCLUSIVE
    needed = None
    if verdict is Verdict.INCONCLUSIVE:
        needed = needed_clusters(estimate, criterion.from_delta(margin))

    show = criterion.show
    effect = f"{criterion.effect} {show(delta)}"
    if bounded:
        effect += f" (90 % interval {show(low)} to {show(high)})"
    limit = f"the margin of {show(margin)}"
    if verdict is Verdict.PASS:
        reason = f"{effect}: even the upper end is inside {limit}."
    elif verdict is Verdict.FAIL:
        reason = f"{effect}: even the lower end is outside {limit}."
    elif few:
        reason = (
            f"{effect}, but {estimate.n_clusters} documents are too few to judge {limit} on: "
            f"at least {MIN_DOCUMENTS} are needed{_for_this_effect(needed)}."
        )
    elif needed is None:
        reason = f"{effect}: the effect equals {limit}, and no number of documents would decide it."
    else:
        reason = (
            f"{effect}: {limit} is within the interval, and about {needed} documents would decide it "
            f"at this effect and spread ({estimate.n_clusters} were measured)."
        )
    return CriterionResult(
        artifact=artifact,
        name=criterion.name,
        metric=criterion.metric,
        baseline=baseline,
        value=value,
        delta=delta,
        ci_low=low if bounded else None,
        ci_high=high if bounded else None,
        margin=margin,
        n=estimate.n,
        n_clusters=estimate.n_clusters,
        verdict=verdict,
        reason=reason,
        needed_clusters=needed,
    )


def _for_this_effect(needed: int | None) -> str:
    return f", about {needed} at this effect and spread" if needed and needed > MIN_DOCUMENTS else ""
