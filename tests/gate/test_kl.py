"""The tail of KL and the agreement of likeliest tokens, each against its margin."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import poisson

from quantflow.gate.kl import kl_criterion, kl_p99_criterion, top1_criterion
from quantflow.gate.statistics import quantile_estimate, ratio_estimate
from quantflow.gate.verdict import Verdict
from quantflow.measure.measurement import Samples
from tests.gate.test_gate import pair


def tailed(share: float, documents: int = 100, height: float = 1.0) -> Samples:
    """Every document has this share of positions with a KL of `height`, the others one near 0."""
    _, measured = pair(documents)
    size = measured.document.size
    high = np.arange(size) * 7919 % 1000 < round(
        1000 * share
    )  # of every thousand exactly so many, spread out
    spread = np.random.default_rng(3).uniform(0.9, 1.1, size)
    return replace(measured, kl=np.where(high, height, 0.01) * spread, top1=~high)


def test_p99_passes_where_far_fewer_than_one_position_in_100_is_beyond_the_margin() -> None:
    assert kl_p99_criterion("int4", tailed(0.002), 0.5).verdict is Verdict.PASS


def test_p99_fails_where_far_more_are() -> None:
    judged = kl_p99_criterion("int4", tailed(0.05), 0.5)
    assert judged.verdict is Verdict.FAIL
    assert judged.metric == "kl_p99"
    assert judged.value == pytest.approx(1.06, abs=0.03)


def test_p99_is_inconclusive_where_it_may_be_one_in_100_and_says_how_many_documents_decide() -> None:
    judged = kl_p99_criterion("int4", tailed(0.009), 0.5)
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.needed_clusters is not None and judged.needed_clusters > 100


def test_p99_of_a_sample_too_small_for_an_upper_bound_is_inconclusive_never_a_pass() -> None:
    _, measured = pair(30)
    kl = np.full(measured.document.size, 0.01)
    kl[:18] = 0.4  # 18 of 1500 positions, all in one document
    judged = kl_p99_criterion("int4", replace(measured, kl=kl), 0.5)
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.ci_high is None
    assert "too few for an upper bound" in judged.reason


def test_the_quantile_s_interval_is_woodruff_s() -> None:
    rng = np.random.default_rng(0)
    values = rng.permutation(10_000).astype(np.float64)
    document = np.repeat(np.arange(200, dtype=np.int32), 50)
    found = quantile_estimate(document, values, 0.9)
    half = 1.6525 * ratio_estimate(document, (values >= found.value).astype(np.float64)).std_error
    assert found.value == pytest.approx(8999, abs=1)
    assert found.ci_low == pytest.approx(10_000 * (0.9 - half), abs=2)
    assert found.ci_high == pytest.approx(10_000 * (0.9 + half), abs=2)


@pytest.mark.parametrize(
    ("share", "verdict"), [(0.02, Verdict.PASS), (0.05, Verdict.INCONCLUSIVE), (0.09, Verdict.FAIL)]
)
def test_agreement_is_judged_as_the_share_that_differs(share: float, verdict: Verdict) -> None:
    judged = top1_criterion("int4", tailed(share), min_agreement=0.95)
    assert judged.verdict is verdict
    assert judged.value == pytest.approx(1 - share)
    assert judged.margin == pytest.approx(0.05)


def test_agreement_everywhere_is_bounded_by_documents_which_are_the_sample() -> None:
    judged = top1_criterion("int4", pair(40)[1], min_agreement=0.9)
    assert judged.delta == 0 and judged.ci_high == pytest.approx(3 / 40)
    assert judged.verdict is Verdict.PASS
    closer = top1_criterion("int4", pair(40)[1], min_agreement=0.95)
    assert (closer.verdict, closer.needed_clusters) == (Verdict.INCONCLUSIVE, 60)
    enough = top1_criterion("int4", pair(60)[1], min_agreement=0.95)
    assert enough.verdict is Verdict.PASS


@pytest.mark.parametrize("expected", [3, 4.5, 6, 9])
def test_a_few_flips_pass_no_more_often_than_one_time_in_twenty_at_the_margin(expected: float) -> None:
    _, measured = pair(40)
    n = measured.document.size
    wrong = 0.0
    for flips in range(12):  # of more none passes at these margins
        top1 = np.ones(n, dtype=np.bool_)
        top1[np.linspace(0, n - 1, flips).astype(int)] = False  # each in another document, as chance has it
        judged = top1_criterion("int4", replace(measured, top1=top1), min_agreement=1 - expected / n)
        if judged.verdict is Verdict.PASS:
            wrong += float(poisson.pmf(flips, expected))
    assert wrong <= 0.05


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_divergence_that_is_no_number_is_an_error(bad: float) -> None:
    samples = tailed(0.01)
    assert samples.kl is not None
    samples.kl[5] = bad
    for judged in (kl_criterion("int4", samples, 1.0), kl_p99_criterion("int4", samples, 1.0)):
        assert judged.verdict is Verdict.ERROR


def test_what_was_not_measured_is_an_error_and_what_is_empty_inconclusive() -> None:
    samples = tailed(0.01)
    assert kl_p99_criterion("int4", replace(samples, kl=None), 1.0).verdict is Verdict.ERROR
    assert top1_criterion("int4", replace(samples, top1=None), 0.5).verdict is Verdict.ERROR
    none = np.empty(0)
    empty = Samples(none.astype(np.int32), none, kl=none, top1=none.astype(np.bool_))
    assert kl_p99_criterion("int4", empty, 1.0).verdict is Verdict.INCONCLUSIVE
    assert top1_criterion("int4", empty, 0.5).verdict is Verdict.INCONCLUSIVE
