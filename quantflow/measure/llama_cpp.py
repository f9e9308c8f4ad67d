"""llama.cpp's block of KL statistics, by its definitions, so that numbers read across.

What `llama-perplexity --kl-divergence` prints: over the second half of every window, tokens taken as
independent, population quantiles interpolated linearly, probabilities of the token that came in percent. Its
uncertainties are standard errors of independent tokens, which are too small; the gate's own intervals go by
documents.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from quantflow.data.windows import Windows
from quantflow.measure.measurement import Samples

KL_QUANTILES = (0.999, 0.99, 0.95, 0.9, 0.5, 0.1, 0.05, 0.01)
DELTA_P_QUANTILES = (0.999, 0.99, 0.95, 0.9, 0.75, 0.5, 0.25, 0.1, 0.05, 0.01, 0.001)


class WithError(BaseModel):
    """A figure ± its standard error, tokens taken as independent.

    Attributes:
        value: The figure.
        error: Its standard error.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float
    error: float


class LlamaCppBlock(BaseModel):
    """The block, in its own order and names.

    Attributes:
        positions: Positions in the second half of their window.
        ppl_q: Perplexity of the artifact.
        ppl_base: Perplexity of the baseline.
        correlation: Correlation of the logarithms of both.
        ln_ppl_ratio: ln(PPL(Q) / PPL(base)).
        ppl_ratio: PPL(Q) / PPL(base).
        ppl_difference: PPL(Q) − PPL(base).
        kld_mean: Mean KL divergence, nats per token.
        kld_max: Its largest value.
        kld_quantiles: Its quantiles by share, `0.999` to `0.01`; `0.5` is the median.
        kld_min: Its smallest value.
        delta_p_mean: Mean change of the probability of the token that came, a fraction.
        delta_p_max: Its largest value.
        delta_p_quantiles: Its quantiles.
        delta_p_min: Its smallest value.
        delta_p_rms: Root of its mean square.
        same_top_p: Share of positions with the same likeliest token.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    positions: int
    ppl_q: WithError
    ppl_base: WithError
    correlation: float
    ln_ppl_ratio: WithError
    ppl_ratio: WithError
    ppl_difference: WithError
    kld_mean: WithError
    kld_max: float
    kld_quantiles: Mapping[str, float]
    kld_min: float
    delta_p_mean: WithError
    delta_p_max: float
    delta_p_quantiles: Mapping[str, float]
    delta_p_min: float
    delta_p_rms: WithError
    same_top_p: WithError


def second_half(windows: Windows) -> NDArray[np.bool_]:
    """Which scored positions llama.cpp counts, [positions].

    Of n tokens it evaluates the logits at n // 2 … n − 2, which predict tokens n // 2 + 1 … n − 1.
    """
    parts = [np.empty(0, dtype=np.bool_)]
    for length, first in zip(np.diff(windows.offsets), windows.scored_from, strict=True):
        parts.append(np.arange(first, length) > length // 2)
    return np.concatenate(parts)


def llama_cpp_block(baseline: Samples, measured: Samples, counted: NDArray[np.bool_]) -> LlamaCppBlock | None:
    """Compute the block from both models' samples.

    Args:
        baseline: Samples of the lossless model.
        measured: Samples of the artifact at the same positions, with KL and agreement.
        counted: Positions that count, see `second_half`.

    Returns:
        The block; None where fewer than two positions count, or the samples have no exact KL.
    """
    count = int(np.count_nonzero(counted))
    if count < 2 or measured.kl is None or measured.top1 is None:
        return None
    before, after = baseline.nll[counted], measured.nll[counted]
    kl, same = measured.kl[counted], float(measured.top1[counted].mean())
    ln_q, ln_base = _mean(after), _mean(before)
    covariance = float(np.mean(after * before)) - ln_q.value * ln_base.value
    covariance /= count - 1
    variance = ln_q.error**2 + ln_base.error**2 - 2 * covariance
    ln_ratio = WithError(value=ln_q.value - ln_base.value, error=math.sqrt(max(0.0, variance)))
    ppl_q, ppl_base = math.exp(ln_q.value), math.exp(ln_base.value)
    ratio = math.exp(ln_ratio.value)
    errors = ppl_q * ln_q.error, ppl_base * ln_base.error
    difference = errors[0] ** 2 + errors[1] ** 2 - 2 * covariance * ppl_q * ppl_base
    spread = ln_q.error * ln_base.error
    delta_p = np.exp(-after) - np.exp(-before)
    squares = _mean(delta_p**2)
    rms = math.sqrt(squares.value)
    return LlamaCppBlock(
        positions=count,
        ppl_q=WithError(value=ppl_q, error=errors[0]),
        ppl_base=WithError(value=ppl_base, error=errors[1]),
        correlation=covariance / spread if spread else 1.0,
        ln_ppl_ratio=ln_ratio,
        ppl_ratio=WithError(value=ratio, error=ratio * ln_ratio.error),
        ppl_difference=WithError(value=ppl_q - ppl_base, error=math.sqrt(max(0.0, difference))),
        kld_mean=_mean(kl),
        kld_max=float(kl.max()),
        kld_quantiles=_quantiles(kl, KL_QUANTILES),
        kld_min=float(kl.min()),
        delta_p_mean=_mean(delta_p),
        delta_p_max=float(delta_p.max()),
        delta_p_quantiles=_quantiles(delta_p, DELTA_P_QUANTILES),
        delta_p_min=float(delta_p.min()),
        delta_p_rms=WithError(value=rms, error=squares.error / (2 * rms) if rms else 0.0),
        same_top_p=WithError(value=same, error=math.sqrt(same * (1 - same) / (count - 1))),
    )


def _mean(values: NDArray[np.float64]) -> WithError:
    mean = float(values.mean())
    variance = float(np.mean(values * values)) - mean * mean
    return WithError(value=mean, error=math.sqrt(max(0.0, variance) / (values.size - 1)))


def _quantiles(values: NDArray[np.float64], shares: tuple[float, ...]) -> dict[str, float]:
    found = np.quantile(values, shares)
    return {str(share): float(value) for share, value in zip(shares, found, strict=True)}
