"""Bounds that hold however often one looks."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import ndtri

from quantflow.gate.sequential import Saving, at_level, look_levels
from quantflow.gate.statistics import RatioEstimate, t_quantile
from quantflow.measure.looks import MOST_LOOKS, look_sizes


def test_one_look_is_the_fixed_test() -> None:
    assert look_levels([1.0]) == pytest.approx((0.05,))


def test_bounds_are_the_published_ones_of_spending_by_the_square() -> None:
    # Jennison & Turnbull (2000), table 7.6 has ρ = 2 at two-sided α = .05, so one-sided .025 each: of five
    # equal looks the nominal levels spend .001, .004, .009, .016 and .025 in all.
    levels = look_levels([0.2, 0.4, 0.6, 0.8, 1.0], alpha=0.025)
    assert -ndtri(levels[0]) == pytest.approx(3.0902, abs=1e-4)  # the normal quantile of .001, exactly
    assert all(a < b for a, b in pairwise(levels))
    assert 0.0150 < levels[-1] < 0.025


def test_all_looks_together_err_with_the_level_asked_for() -> None:
    fractions = np.arange(1, 9) / 8
    bounds = -ndtri(look_levels(fractions.tolist()))
    steps = np.random.default_rng(1).standard_normal((200_000, 8)) * np.sqrt(1 / 8)
    z = np.cumsum(steps, axis=1) / np.sqrt(fractions)
    # Three standard errors of a share of 5 % counted in 200,000 paths are 0.0015.
    assert (z > bounds).any(axis=1).mean() == pytest.approx(0.05, abs=0.0015)
    assert (z > -ndtri(0.05)).any(axis=1).mean() > 0.15  # looking eight times at 5 % each


@pytest.mark.parametrize("fractions", [[], [0.5], [0.5, 0.4, 1.0], [0.0, 1.0]])
def test_shares_of_evidence_that_make_no_sense_are_refused(fractions: list[float]) -> None:
    with pytest.raises(ValueError, match="ascend to 1"):
        look_levels(fractions)


def test_no_look_is_taken_with_fewer_documents_than_a_verdict_takes() -> None:
    assert look_sizes(240) == tuple(range(30, 241, 30))
    assert look_sizes(60) == (30, 38, 45, 53, 60)
    assert look_sizes(20) == (20,)
    assert all(len(look_sizes(n)) <= MOST_LOOKS for n in range(1, 600))


def test_a_stricter_look_has_longer_arms_on_both_sides() -> None:
    estimate = RatioEstimate(1.0, 0.1, 0.9, 1.3, n=4000, n_clusters=40)
    same = at_level(estimate, 0.05)
    assert (same.ci_low, same.ci_high) == pytest.approx((0.9, 1.3))
    strict = at_level(estimate, 0.001)
    factor = 3.3128 / t_quantile(39)  # t(0.999, 39)
    assert strict.ci_high - 1 == pytest.approx(0.3 * factor, rel=1e-3)
    assert 1 - strict.ci_low == pytest.approx(0.1 * factor, rel=1e-3)


def test_what_was_saved_is_said() -> None:
    assert Saving(90, 240, 3).sentence() == (
        "Perplexity and KL were decided after 90 of 240 documents (3 looks): 62 % of the measuring was saved."
    )
    assert Saving(240, 240, 8).sentence() == "All 240 documents were needed (8 looks)."
