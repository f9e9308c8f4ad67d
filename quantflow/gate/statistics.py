"""Means per token with intervals that know that tokens of one document belong together."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from quantflow.data.documents import MIN_DOCUMENTS

ONE_SIDED_LEVEL = 0.95
"""Each end of an interval is a one-sided bound at this level, so both together are a 90 % interval."""

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


def ratio_estimate(document: NDArray[np.int32], values: NDArray[np.floating]) -> RatioEstimate:
    """Mean per token of values whose documents, not tokens, are independent.

    The ratio estimator r = Σ_g y_g / Σ_g m_g over documents g with sums y_g and m_g tokens, its variance by
    linearisation, G/(G−1) · Σ_g (y_g − r·m_g)² / (Σ_g m_g)² (Cochran, Sampling Techniques, 3rd ed., §6.3
    and §9A.1), and a t interval with G−1 degrees of freedom.

    Args:
        document: Document of each token, [tokens].
        values: Value of each token, [tokens], finite.

    Raises:
        ValueError: There are no tokens, or the arrays differ in length.
    """
    if document.shape != values.shape or document.size == 0:
        raise ValueError(f"need one value per token and at least one: {values.shape}, {document.shape}")
    _, cluster = np.unique(document, return_inverse=True)
    sums = np.bincount(cluster, weights=values)  # sums in double precision
    tokens = np.bincount(cluster).astype(np.float64)
    clusters = len(sums)
    total = float(tokens.sum())
    value = float(sums.sum()) / total
    if clusters == 1:
        return RatioEstimate(value, math.inf, -math.inf, math.inf, int(total), 1)
    residuals = sums - value * tokens
    variance = clusters / (clusters - 1) * float(residuals @ residuals) / total**2
    std_error = math.sqrt(variance)
    half = t_quantile(clusters - 1) * std_error
    return RatioEstimate(value, std_error, value - half, value + half, int(total), clusters)


def needed_clusters(estimate: RatioEstimate, margin: float) -> int | None:
    """Fewest documents whose interval would lie on one side of the margin, at this effect and this spread.

    Half of the samples of that size would come out less clear than this one: it is the size to aim beyond.

    Args:
        estimate: The effect, its standard error and the documents it came from.
        margin: The margin, on the estimate's own scale.

    Returns:
        Documents, never fewer than `MIN_DOCUMENTS`; None where the effect equals the margin (or is as good as
        equal) or where one document shows no spread.
    """
    distance = abs(estimate.value - margin)
    spread = estimate.std_error * math.sqrt(estimate.n_clusters)
    if distance == 0 or not math.isfinite(spread / distance) or (spread / distance) ** 2 > _MAX_NEEDED:
        return None
    # The normal quantile is smaller than any t quantile: a start below the answer, and at most a few short.
    needed = max(MIN_DOCUMENTS, math.floor((float(ndtri(ONE_SIDED_LEVEL)) * spread / distance) ** 2))
    while t_quantile(needed - 1) * spread >= distance * math.sqrt(needed):
        needed += 1
    return needed
