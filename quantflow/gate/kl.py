"""The criteria under `kl`: the mean of KL(baseline ‖ artifact), its 99 % quantile, how often both agree."""

import math
from dataclasses import replace

import numpy as np
from scipy.special import betaincinv

from quantflow.data.documents import MIN_DOCUMENTS
from quantflow.gate.decide import FIXED_LEVEL, Criterion, decide, error, not_finite, nothing
from quantflow.gate.result import CriterionResult
from quantflow.gate.sequential import RESOLVED, at_level
from quantflow.gate.statistics import (
    ONE_SIDED_LEVEL,
    RatioEstimate,
    needed_clusters,
    quantile_estimate,
    ratio_estimate,
    t_quantile,
)
from quantflow.measure.measurement import Samples

TAIL = 0.99
"""The quantile of `max_p99`."""

RULE_OF_THREE = 3.0
"""−ln 0.05: of n independent observations without an event the 95 % bound of its probability is 3 / n (Hanley
& Lippman-Hand 1983). Documents are what is independent: that none of 50 has an event allows for 6 % of
documents in which every position has one."""

_NO_KL = "The measurement holds no KL, so this criterion has nothing to judge."


def _nats(value: float) -> str:
    return f"{value:.4g}"


def _percent(value: float) -> str:
    return f"{100 * value:.4g} %"


MEAN = Criterion("kl", "kl_mean", "Mean KL in nats per token is", _nats)
P99 = Criterion("kl", "kl_p99", "The 99 % quantile of KL in nats per token is", _nats)
TOP1 = Criterion(
    "kl", "top1_agreement", "The share of positions at which the likeliest token differs is", _percent
)


def kl_criterion(
    artifact: str, measured: Samples, max_mean_kl: float, *, level: float = FIXED_LEVEL
) -> CriterionResult:
    """Judge the mean KL(baseline ‖ artifact) over all scored positions.

    Args:
        artifact: Name of the artifact.
        measured: Samples of the artifact.
        max_mean_kl: Margin, nats per token.
        level: One-sided probability with which either bound may err.
    """
    unusable = _unusable(artifact, MEAN, measured, max_mean_kl)
    if unusable is not None or measured.kl is None:
        return unusable or error(artifact, MEAN, max_mean_kl, _NO_KL)
    estimate = ratio_estimate(measured.document, measured.kl, skewed=True)
    bounds = None
    if level != FIXED_LEVEL:  # what the tails are like at 5 % says too little of them far out
        found_at = max(level, RESOLVED)
        found = ratio_estimate(measured.document, measured.kl, skewed=True, level=1 - found_at)
        bounds = at_level(found, level, found_at)
    return decide(artifact, MEAN, estimate, max_mean_kl, value=estimate.value, level=level, bounds=bounds)


def kl_p99_criterion(artifact: str, measured: Samples, max_p99: float) -> CriterionResult:
    """Judge the 99 % quantile of the KL over all scored positions.

    Args:
        artifact: Name of the artifact.
        measured: Samples of the artifact.
        max_p99: Margin, nats per token.
    """
    unusable = _unusable(artifact, P99, measured, max_p99)
    if unusable is not None or measured.kl is None:
        return unusable or error(artifact, P99, max_p99, _NO_KL)
    estimate = quantile_estimate(measured.document, measured.kl, TAIL)
    # More documents narrow the share of positions beyond the margin, which is to be told from 1 %.
    beyond = ratio_estimate(measured.document, (measured.kl > max_p99).astype(np.float64))
    return decide(
        artifact,
        P99,
        estimate,
        max_p99,
        value=estimate.value,
        needed=needed_clusters(beyond, 1 - TAIL),
    )


def top1_criterion(artifact: str, measured: Samples, min_agreement: float) -> CriterionResult:
    """Judge the share of positions at which baseline and artifact find the same token likeliest.

    Args:
        artifact: Name of the artifact.
        measured: Samples of the artifact.
        min_agreement: Smallest acceptable share, a fraction.
    """
    margin = 1 - min_agreement
    if measured.top1 is None:
        reason = "The measurement does not say which tokens are likeliest, so there is nothing to judge."
        return error(artifact, TOP1, margin, reason)
    if measured.top1.size == 0:
        return nothing(artifact, TOP1, margin)
    estimate = ratio_estimate(measured.document, (~measured.top1).astype(np.float64))
    needed = None
    if estimate.value == 0:  # no spread is seen where nothing differs
        estimate = replace(estimate, ci_high=min(1.0, RULE_OF_THREE / estimate.n_clusters))
        needed = max(MIN_DOCUMENTS, math.floor(RULE_OF_THREE / margin) + 1) if margin > 0 else None
    else:
        estimate = replace(estimate, ci_high=max(estimate.ci_high, rare_share_bound(estimate)))
    return decide(artifact, TOP1, estimate, margin, value=1 - estimate.value, needed=needed)


def rare_share_bound(estimate: RatioEstimate) -> float:
    """One-sided 95 % upper bound of a share that holds where events are few, too.

    Of a few flips the mean is far from normal: two standard errors above one flip are 2.7 flips, where up to
    4.7 are compatible with it. Korn & Graubard (1998), "Confidence intervals for proportions with small
    expected number of positive counts estimated from survey data", Survey Methodology 24: Clopper and
    Pearson's bound at the sample size that would have this standard error without documents.

    Args:
        estimate: A share above 0, its standard error and the documents it came from.
    """
    share = estimate.value
    if share >= 1 or estimate.n_clusters == 1:
        return 1.0
    size = float(estimate.n)
    if estimate.std_error > 0:
        ratio = t_quantile(estimate.n - 1) / t_quantile(estimate.n_clusters - 1)
        size = min(size, share * (1 - share) / estimate.std_error**2 * ratio**2)
    return float(betaincinv(share * size + 1, size - share * size, ONE_SIDED_LEVEL))


def _unusable(
    artifact: str, criterion: Criterion, measured: Samples, margin: float
) -> CriterionResult | None:
    """The result where there is nothing to judge, or nothing that can be."""
    if measured.kl is None:
        return error(artifact, criterion, margin, _NO_KL)
    if measured.kl.size == 0:
        return nothing(artifact, criterion, margin)
    problem = not_finite("The KL", measured.kl)
    return None if problem is None else error(artifact, criterion, margin, problem)
