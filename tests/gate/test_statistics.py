import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from quantflow.data.documents import MIN_DOCUMENTS
from quantflow.gate.statistics import (
    RatioEstimate,
    clustered_ratio,
    detectable_change,
    fail_p,
    needed_clusters,
    ratio_estimate,
    t_quantile,
)
from quantflow.gate.studentized import Clusters


def clustered(
    rng: np.random.Generator, documents: int, mean: float
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Tokens of documents of unequal length that share half of their variance within a document."""
    lengths = rng.integers(20, 60, documents)
    document = np.repeat(np.arange(documents, dtype=np.int32), lengths)
    shared = rng.normal(0, 0.5, documents)[document]
    return document, mean + shared + rng.normal(0, 0.5, document.size)


def test_estimate_matches_the_formula_worked_by_hand() -> None:
    # Documents of 1, 2 and 3 tokens with sums 1, 4, 3: r = 8/6, residuals −1/3, 4/3, −1.
    document = np.array([5, 7, 7, 9, 9, 9], dtype=np.int32)
    values = np.array([1.0, 1.5, 2.5, 0.5, 1.0, 1.5])
    estimate = ratio_estimate(document, values)
    std_error = math.sqrt(3 / 2 * (1 / 9 + 16 / 9 + 1)) / 6
    assert estimate.value == pytest.approx(8 / 6)
    assert estimate.std_error == pytest.approx(std_error)
    assert estimate.ci_high - estimate.value == pytest.approx(2.919986 * std_error, rel=1e-6)
    assert estimate.value - estimate.ci_low == pytest.approx(2.919986 * std_error, rel=1e-6)
    assert (estimate.n, estimate.n_clusters) == (6, 3)


def test_estimate_does_not_depend_on_the_order_of_tokens() -> None:
    rng = np.random.default_rng(1)
    document, values = clustered(rng, 40, 0.1)
    order = rng.permutation(document.size)
    shuffled = ratio_estimate(document[order], values[order])
    assert shuffled.ci_high == pytest.approx(ratio_estimate(document, values).ci_high)


def test_float32_values_are_summed_in_double_precision() -> None:
    values = np.full(3_000_000, 0.1, dtype=np.float32)
    document = np.repeat(np.arange(30, dtype=np.int32), 100_000)
    assert ratio_estimate(document, values).value == pytest.approx(float(np.float32(0.1)), rel=1e-12)


def test_one_document_has_no_spread_to_know_so_its_interval_is_unbounded() -> None:
    estimate = ratio_estimate(np.zeros(9, dtype=np.int32), np.linspace(0, 1, 9))
    assert (estimate.ci_low, estimate.ci_high) == (-math.inf, math.inf)


def test_no_tokens_are_refused_rather_than_estimated() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ratio_estimate(np.empty(0, dtype=np.int32), np.empty(0))


def test_bounds_cover_clustered_data_and_those_of_tokens_do_not() -> None:
    rng = np.random.default_rng(20261130)
    mean, runs = 0.2, 300
    above = below = naive_above = 0
    for _ in range(runs):
        document, values = clustered(rng, 40, mean)
        estimate = ratio_estimate(document, values)
        above += mean < estimate.ci_high
        below += mean > estimate.ci_low
        naive = values.std(ddof=1) / math.sqrt(values.size)
        naive_above += mean < values.mean() + 1.645 * naive
    # Three standard errors of a coverage counted in 300 runs are 0.038; benchmarks/gate.py counts 10,000.
    assert above / runs == pytest.approx(0.95, abs=0.038)
    assert below / runs == pytest.approx(0.95, abs=0.038)
    assert naive_above / runs < 0.80


def test_what_is_skewed_reaches_farther_up_than_down() -> None:
    rng = np.random.default_rng(7)
    tokens = np.full(60, 100.0)
    heavy = clustered_ratio(Clusters(tokens * rng.lognormal(0, 0.8, 60), tokens), skewed=True)
    up, down = heavy.ci_high - heavy.value, heavy.value - heavy.ci_low
    assert up > 1.3 * down
    student = t_quantile(59) * heavy.std_error
    assert up > student > down


def test_equal_samples_have_equal_intervals() -> None:
    document, values = clustered(np.random.default_rng(4), 40, 0.1)
    assert ratio_estimate(document, values) == ratio_estimate(document, values)
    assert ratio_estimate(document, np.exp(values), skewed=True) == ratio_estimate(
        document, np.exp(values), skewed=True
    )


def test_divergences_of_zero_have_no_logarithm_and_are_resampled() -> None:
    rng = np.random.default_rng(5)
    tokens = np.full(60, 100.0)
    sums = tokens * np.where(rng.random(60) < 0.3, 0.0, rng.lognormal(0, 0.5, 60))
    assert clustered_ratio(Clusters(sums, tokens), skewed=True) == clustered_ratio(Clusters(sums, tokens))


def test_a_few_documents_that_differ_at_all_have_student_s_interval() -> None:
    tokens = np.full(60, 100.0)
    for many, student in ((1, True), (20, False)):
        estimate = clustered_ratio(Clusters(np.where(np.arange(60) < many, 1.0, 0.0), tokens))
        half = t_quantile(59) * estimate.std_error
        assert math.isfinite(estimate.ci_high)
        assert (estimate.ci_high - estimate.value == pytest.approx(half)) is student


def test_equal_values_have_no_spread_whatever_rounding_leaves() -> None:
    estimate = ratio_estimate(np.repeat(np.arange(40, dtype=np.int32), 7), np.full(280, 0.1))
    assert estimate.ci_low == pytest.approx(0.1) == estimate.ci_high
    assert needed_clusters(estimate, margin=0.2) == MIN_DOCUMENTS


def test_a_detectable_change_is_found_four_times_of_five() -> None:
    half = t_quantile(39) * 0.01
    estimate = RatioEstimate(0.0, 0.01, -half, half, n=4000, n_clusters=40)
    # t(0.95, 39) + z(0.8) = 1.6849 + 0.8416 standard errors.
    assert detectable_change(estimate) == pytest.approx(0.025265, abs=1e-5)
    assert detectable_change(ratio_estimate(np.zeros(9, dtype=np.int32), np.ones(9))) is None


def test_p_of_a_failure_is_5_percent_where_the_bound_touches_the_margin() -> None:
    half = t_quantile(39) * 0.01
    touching = RatioEstimate(0.03 + half, 0.01, 0.03, 0.03 + 2 * half, n=4000, n_clusters=40)
    assert fail_p(touching, margin=0.03) == pytest.approx(0.05)
    assert fail_p(touching, margin=0.03 + half) == pytest.approx(0.5)


def test_needed_clusters_is_the_smallest_number_whose_interval_clears_the_margin() -> None:
    half = t_quantile(39) * 0.01
    symmetric = RatioEstimate(0.02, 0.01, 0.02 - half, 0.02 + half, n=4000, n_clusters=40)
    needed = needed_clusters(symmetric, margin=0.03)
    assert needed is not None

    def half_width(clusters: int) -> float:
        return t_quantile(clusters - 1) * 0.01 * math.sqrt(40 / clusters)

    assert half_width(needed) < 0.01 <= half_width(needed - 1)
    # An arm twice as long needs four times the documents, but for the quantile of t, the other one no more.
    skewed = replace(symmetric, ci_high=0.02 + 2 * half)
    assert needed_clusters(skewed, margin=0.03) == pytest.approx(4 * needed, rel=0.03)
    assert needed_clusters(skewed, margin=0.01) == needed


def test_needed_clusters_never_asks_for_fewer_than_the_minimum() -> None:
    estimate = RatioEstimate(value=0.0, std_error=1e-6, ci_low=0.0, ci_high=0.0, n=400, n_clusters=8)
    assert needed_clusters(estimate, margin=0.03) == MIN_DOCUMENTS


@pytest.mark.parametrize("value", [0.03, math.nextafter(0.03, 0)])
def test_needed_clusters_is_none_where_the_effect_equals_the_margin(value: float) -> None:
    estimate = RatioEstimate(value=value, std_error=0.01, ci_low=0.0, ci_high=0.1, n=400, n_clusters=40)
    assert needed_clusters(estimate, margin=0.03) is None


def test_needed_clusters_is_none_where_one_document_shows_no_spread() -> None:
    estimate = ratio_estimate(np.zeros(5, dtype=np.int32), np.ones(5))
    assert needed_clusters(estimate, margin=0.03) is None
