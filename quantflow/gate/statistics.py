"""Means per token with intervals that know that tokens of one document belong together."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from quantflow.data.documents import MIN_DOCUMENTS
from quantflow.gate.studentized import Clusters, Tails, lognormal_tails, resampled_tails

ONE_SIDED_LEVEL = 0.95
"""Each end of an interval is a one-sided bound at this level, so both together are a 90 % interval."""

POWER = 0.8
"""Probability with which an effect is to be found, for sample sizes and smallest detectable changes; Cohen's
customary value."""

_ROUNDING = 1e-12
"""Spread relative to the mean that is none: what double precision leaves of sums of equal values."""

_MAX_NEEDED = 10**9
"""No one collects more documents than this; an effect that needs them equals its margin in practice."""


@dataclass(frozen=True)
class RatioEstimate:
    """A mean per token and its document-clustered 90 % interval.

    Attributes:
        value: Σ values / Σ tokens.
        std_error: Cluster-robust standard error of `value`; infinite for a single document.
        ci_low: Lower end, a one-sided 95 % bound.
        ci_high: Upper end, a one-sided 95 % bound.
        n: Tokens.
        n_clusters: Documents.
    """

    value: float
    std_error: float
    ci_low: float
    ci_high: float
    n: int
    n_clusters: int


def t_quantile(degrees_of_freedom: int) -> float:
    """Student's t at the one-sided level with these degrees of freedom."""
    return float(stdtrit(degrees_of_freedom, ONE_SIDED_LEVEL))


def ratio_estimate(
    document: NDArray[np.int32],
    values: NDArray[np.floating],
    *,
    skewed: bool = False,
    level: float = ONE_SIDED_LEVEL,
) -> RatioEstimate:
    """Mean per token of values whose documents, not tokens, are independent.

    The ratio estimator r = Σ_g y_g / Σ_g m_g over documents g with sums y_g and m_g tokens, its variance by
    linearisation, G/(G−1) · Σ_g (y_g − r·m_g)² / (Σ_g m_g)² (Cochran, Sampling Techniques, 3rd ed., §6.3
    and §9A.1), and a studentized interval: how far (estimate − truth) / standard error reaches to either side
    is found by resampling documents, or, for what is positive and skewed, by a log-normal working model
    (docs/decisions/0042). Below `MIN_DOCUMENTS`, where nothing is decided, it is Student's t.

    Args:
        document: Document of each token, [tokens].
        values: Value of each token, [tokens], finite.
        skewed: Whether the values cannot be negative and have a long tail, as divergences do.
        level: One-sided level of both bounds.

    Raises:
        ValueError: There are no tokens, or the arrays differ in length.
    """
    if document.shape != values.shape or document.size == 0:
        raise ValueError(f"need one value per token and at least one: {values.shape}, {document.shape}")
    _, cluster = np.unique(document, return_inverse=True)
    sums: NDArray[np.float64] = np.bincount(cluster, weights=values).astype(np.float64)
    tokens = np.bincount(cluster).astype(np.float64)
    return clustered_ratio(Clusters(sums, tokens), skewed=skewed, level=level)


def clustered_ratio(
    clusters: Clusters, *, skewed: bool = False, level: float = ONE_SIDED_LEVEL
) -> RatioEstimate:
    """The same from the sums of documents, see `ratio_estimate`."""
    n, count, value = int(clusters.weights.sum()), clusters.count, float(clusters.ratio)
    if count == 1:
        return RatioEstimate(value, math.inf, -math.inf, math.inf, n, 1)
    std_error = float(clusters.std_error)
    tails = tails_of(clusters, skewed=skewed, level=level)
    low, high = value - float(tails.below) * std_error, value + float(tails.above) * std_error
    return RatioEstimate(value, std_error, low, high, n, count)


def tails_of(clusters: Clusters, *, skewed: bool, level: float = ONE_SIDED_LEVEL) -> Tails:
    """How far the interval reaches, by the method that suits the values, see `ratio_estimate`."""
    spread = clusters.std_error > _ROUNDING * np.abs(clusters.ratio)
    if clusters.count < MIN_DOCUMENTS or not spread.all():
        half = np.full(clusters.ratio.shape, float(stdtrit(clusters.count - 1, level)))
        return Tails(half, half)
    if skewed and (clusters.sums > 0).all():
        return lognormal_tails(clusters, level)
    return resampled_tails(clusters, level)


def needed_clusters(estimate: RatioEstimate, margin: float) -> int | None:
    """Fewest documents whose interval would lie on one side of the margin, at this effect and this spread.

    Half of the samples of that size would come out less clear than this one: it is the size to aim beyond.

    Args:
        estimate: The effect, its standard error, its interval and the documents it came from.
        margin: The margin, on the estimate's own scale.

    Returns:
        Documents, never fewer than `MIN_DOCUMENTS`; None where the effect equals the margin (or is as good as
        equal) or where one document shows no spread.
    """
    distance = abs(estimate.value - margin)
    spread = estimate.std_error * math.sqrt(estimate.n_clusters)
    if distance == 0 or not math.isfinite(spread / distance) or (spread / distance) ** 2 > _MAX_NEEDED:
        return None
    # Of the two arms the one that points to the margin has to shrink until it does not reach it.
    arm = estimate.ci_high - estimate.value if estimate.value < margin else estimate.value - estimate.ci_low
    asymmetry = (
        arm / (t_quantile(estimate.n_clusters - 1) * estimate.std_error) if estimate.std_error else 1.0
    )
    # The normal quantile is smaller than any t quantile: a start below the answer, and at most a few short.
    start = float(ndtri(ONE_SIDED_LEVEL)) * asymmetry * spread / distance
    needed = max(MIN_DOCUMENTS, math.floor(start**2))
    while t_quantile(needed - 1) * asymmetry * spread >= distance * math.sqrt(needed):
        needed += 1
    return needed


def detectable_change(estimate: RatioEstimate) -> float | None:
    """The smallest change that a sample like this would have told from none at all, with a power of 80 %.

    (t₀.₉₅ + z₀.₈) standard errors: what a one-sided test at 5 % finds four times of five. None where one
    document shows no spread.
    """
    if not math.isfinite(estimate.std_error):
        return None
    return (t_quantile(estimate.n_clusters - 1) + float(ndtri(POWER))) * estimate.std_error


def fail_p(estimate: RatioEstimate, margin: float) -> float:
    """One-sided p of the hypothesis that the true value is within the margin; 0.05 where a bound touches it.

    Args:
        estimate: The effect and its interval.
        margin: The margin, on the estimate's own scale.
    """
    reach = estimate.value - estimate.ci_low
    if reach == 0:
        return 0.0 if estimate.value > margin else 1.0
    freedom = estimate.n_clusters - 1
    return float(stdtr(freedom, t_quantile(freedom) * (margin - estimate.value) / reach))


def quantile_estimate(
    document: NDArray[np.int32], values: NDArray[np.floating], level: float
) -> RatioEstimate:
    """A quantile of all tokens' values, and its document-clustered 90 % interval.

    Woodruff (1952), "Confidence intervals for medians and other position measures": the interval of the share
    of values above the quantile, documents being independent, is read off the values' own distribution. Where
    that share might be none at all the sample has no upper bound to give, and it is infinite.

    Args:
        document: Document of each token, [tokens].
        values: Value of each token, [tokens], finite.
        level: Share of values below the quantile.
    """
    value = float(np.quantile(values, level))
    above = ratio_estimate(document, (values >= value).astype(np.float64))  # ties with it are seen, too
    if above.n_clusters == 1:
        return RatioEstimate(value, math.inf, -math.inf, math.inf, above.n, 1)
    half = t_quantile(above.n_clusters - 1) * above.std_error
    share = 1 - level
    low, high = share + half, share - half
    return RatioEstimate(
        value=value,
        std_error=math.nan,
        ci_low=-math.inf if low >= 1 else float(np.quantile(values, 1 - low)),
        ci_high=math.inf if high <= 0 else float(np.quantile(values, 1 - high)),
        n=above.n,
        n_clusters=above.n_clusters,
    )
