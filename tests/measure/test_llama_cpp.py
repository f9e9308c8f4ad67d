"""llama.cpp's block against its definitions, on logits kept whole."""

import math

import numpy as np
import pytest

from quantflow.data.windows import make_windows
from quantflow.measure.llama_cpp import LlamaCppBlock, llama_cpp_block, second_half
from quantflow.measure.measurement import Samples
from tests.measure.inputs import evaluation_windows

POSITIONS, VOCABULARY = 997, 60
TOLERANCE = 1e-6


def stored_logits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Logits of a baseline and of an artifact that is a little off, and the tokens that came."""
    rng = np.random.default_rng(11)
    base = rng.normal(0, 3, (POSITIONS, VOCABULARY))
    return base, base + rng.normal(0, 0.3, base.shape), rng.integers(0, VOCABULARY, POSITIONS)


def by_definition() -> dict[str, float]:
    """What perplexity.cpp computes, token by token, with sums as it keeps them."""
    base, q, came = stored_logits()
    sum_nll = sum_nll2 = sum_base = sum_base2 = sum_cross = sum_kld = sum_kld2 = 0.0
    sum_dp = sum_dp2 = sum_dp4 = 0.0
    same, klds, dps = 0, [], []
    for i in range(POSITIONS):
        lp = [v - math.log(math.fsum(math.exp(x) for x in base[i])) for v in base[i]]
        lq = [v - math.log(math.fsum(math.exp(x) for x in q[i])) for v in q[i]]
        kld = math.fsum(math.exp(a) * (a - b) for a, b in zip(lp, lq, strict=True))
        nll_base, nll = -lp[came[i]], -lq[came[i]]
        dp = math.exp(-nll) - math.exp(-nll_base)
        sum_nll, sum_nll2 = sum_nll + nll, sum_nll2 + nll * nll
        sum_base, sum_base2 = sum_base + nll_base, sum_base2 + nll_base**2
        sum_cross, sum_kld, sum_kld2 = sum_cross + nll * nll_base, sum_kld + kld, sum_kld2 + kld * kld
        sum_dp, sum_dp2, sum_dp4 = sum_dp + dp, sum_dp2 + dp**2, sum_dp4 + dp**4
        same += lp.index(max(lp)) == lq.index(max(lq))
        klds.append(kld)
        dps.append(dp)

    def uncertainty(total: float, squares: float) -> float:
        return math.sqrt((squares / POSITIONS - (total / POSITIONS) ** 2) / (POSITIONS - 1))

    def percentile(values: list[float], fraction: float) -> float:
        place = fraction * (len(values) - 1)
        at, rest = int(place), place - int(place)
        return (1 - rest) * sorted(values)[at] + rest * sorted(values)[min(at + 1, len(values) - 1)]

    errors = uncertainty(sum_nll, sum_nll2), uncertainty(sum_base, sum_base2)
    covariance = (sum_cross / POSITIONS - sum_nll / POSITIONS * sum_base / POSITIONS) / (POSITIONS - 1)
    return {
        "ln_ratio": (sum_nll - sum_base) / POSITIONS,
        "ln_ratio_error": math.sqrt(errors[0] ** 2 + errors[1] ** 2 - 2 * covariance),
        "correlation": covariance / (errors[0] * errors[1]),
        "ppl_q": math.exp(sum_nll / POSITIONS),
        "kld": sum_kld / POSITIONS,
        "kld_error": uncertainty(sum_kld, sum_kld2),
        "kld_max": max(klds),
        "kld_999": percentile(klds, 0.999),
        "kld_median": percentile(klds, 0.5),
        "kld_01": percentile(klds, 0.01),
        "dp": sum_dp / POSITIONS,
        "dp_rms": math.sqrt(sum_dp2 / POSITIONS),
        "dp_rms_error": uncertainty(sum_dp2, sum_dp4) / (2 * math.sqrt(sum_dp2 / POSITIONS)),
        "dp_05": percentile(dps, 0.05),
        "same": same / POSITIONS,
        "same_error": math.sqrt(same / POSITIONS * (1 - same / POSITIONS) / (POSITIONS - 1)),
    }


def block() -> LlamaCppBlock:
    """The block from the samples that scoring would have stored of these logits."""
    base, q, came = stored_logits()
    lp, lq = (x - np.log(np.exp(x).sum(axis=1, keepdims=True)) for x in (base, q))
    at = np.arange(POSITIONS)
    document = np.zeros(POSITIONS, dtype=np.int32)
    measured = Samples(
        document,
        -lq[at, came],
        kl=(np.exp(lp) * (lp - lq)).sum(axis=1),
        top1=lp.argmax(axis=1) == lq.argmax(axis=1),
    )
    found = llama_cpp_block(Samples(document, -lp[at, came]), measured, np.ones(POSITIONS, dtype=np.bool_))
    assert found is not None
    return found


def test_every_figure_is_what_its_definition_gives() -> None:
    found, expected = block(), by_definition()
    assert {
        "ln_ratio": found.ln_ppl_ratio.value,
        "ln_ratio_error": found.ln_ppl_ratio.error,
        "correlation": found.correlation,
        "ppl_q": found.ppl_q.value,
        "kld": found.kld_mean.value,
        "kld_error": found.kld_mean.error,
        "kld_max": found.kld_max,
        "kld_999": found.kld_quantiles["0.999"],
        "kld_median": found.kld_quantiles["0.5"],
        "kld_01": found.kld_quantiles["0.01"],
        "dp": found.delta_p_mean.value,
        "dp_rms": found.delta_p_rms.value,
        "dp_rms_error": found.delta_p_rms.error,
        "dp_05": found.delta_p_quantiles["0.05"],
        "same": found.same_top_p.value,
        "same_error": found.same_top_p.error,
    } == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)


def test_the_second_half_of_a_window_is_llama_cpp_s() -> None:
    # Of 512 tokens llama.cpp counts the predictions of tokens 257 … 511: 255 of them.
    counted = second_half(make_windows([np.zeros(512, dtype=np.int32)], [0]))
    assert counted.size == 511 and counted.sum() == 255
    assert not counted[:256].any() and counted[256:].all()
    assert second_half(evaluation_windows()).size == evaluation_windows().scored_counts.sum()


def test_an_identical_model_has_no_spread_and_agrees_everywhere() -> None:
    nll = np.linspace(0.1, 5, 50)
    document = np.zeros(50, dtype=np.int32)
    same = Samples(document, nll, kl=np.zeros(50), top1=np.ones(50, dtype=np.bool_))
    found = llama_cpp_block(Samples(document, nll), same, np.ones(50, dtype=np.bool_))
    assert found is not None
    assert (found.ln_ppl_ratio.value, found.kld_max, found.delta_p_rms.value) == (0, 0, 0)
    assert found.same_top_p.value == 1
    assert found.correlation == pytest.approx(1)


def test_without_whole_distributions_there_is_no_block() -> None:
    document, nll = np.zeros(5, dtype=np.int32), np.ones(5)
    assert llama_cpp_block(Samples(document, nll), Samples(document, nll), np.ones(5, dtype=np.bool_)) is None
