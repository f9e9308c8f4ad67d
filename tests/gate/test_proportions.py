"""Right and wrong answers of two models, against published figures and worked examples."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtri

from quantflow.gate.proportions import (
    TaskScores,
    detectable_drop,
    mcnemar,
    needed_items,
    paired_proportions,
    pooled_recovery,
    tango_interval,
)


def answers(both: int, lost: int, gained: int, neither: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    baseline = np.repeat([True, True, False, False], [both, lost, gained, neither])
    artifact = np.repeat([True, False, True, False], [both, lost, gained, neither])
    return baseline, artifact


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        # Fagerland, Lydersen & Laake, Statistical Analysis of Contingency Tables (2017), chapter 8: airway
        # hyper-responsiveness (Bentur et al. 2009) and response to therapy (Cavo et al. 2012).
        ((1, 1, 7, 12), -0.517, -0.026),
        ((59, 6, 16, 80), -0.1240, -0.0054),
    ],
)
def test_tango_s_interval_is_the_published_one(
    counts: tuple[int, int, int, int], low: float, high: float
) -> None:
    found = tango_interval(counts[1], counts[2], sum(counts), float(ndtri(0.975)))
    digits = 3 if low == -0.517 else 4
    assert found == pytest.approx((low, high), abs=0.6 * 10**-digits)


def test_mcnemar_s_exact_p_is_the_published_one() -> None:
    # The same book: P = 0.0703 for 1 and 7 flips, 0.0525 for 6 and 16.
    assert mcnemar(1, 7) == pytest.approx(0.0703, abs=5e-5)
    assert mcnemar(6, 16) == pytest.approx(0.0525, abs=5e-5)
    assert mcnemar(0, 0) == 1.0


def test_flips_are_counted_by_direction_and_a_drop_is_positive() -> None:
    found = paired_proportions(*answers(60, 12, 4, 24))
    assert (found.lost, found.gained, found.n) == (12, 4, 100)
    assert (found.baseline, found.artifact) == (0.72, 0.64)
    assert found.drop == pytest.approx(0.08)
    assert found.ci_low < 0.08 < found.ci_high


def test_no_flip_is_no_certainty() -> None:
    found = paired_proportions(*answers(80, 0, 0, 20))
    # Tango without flips is z² / (n + z²), as Wilson's interval is.
    bound = 1.6448536**2 / (100 + 1.6448536**2)
    assert found.ci_high == pytest.approx(bound, abs=1e-6)
    assert found.ci_low == pytest.approx(-bound, abs=1e-6)


def test_copies_of_every_item_in_a_group_say_no_more_than_one() -> None:
    baseline, artifact = answers(150, 20, 10, 120)
    once = paired_proportions(baseline, artifact)
    copies = np.repeat(baseline, 5), np.repeat(artifact, 5)
    grouped = paired_proportions(*copies, group=np.repeat(np.arange(300), 5))
    alone = paired_proportions(*copies)
    assert grouped.n_clusters == 300
    assert grouped.design_effect == pytest.approx(5, rel=0.02)
    assert grouped.ci_high - grouped.ci_low == pytest.approx(once.ci_high - once.ci_low, rel=0.02)
    assert alone.ci_high - alone.ci_low < 0.5 * (grouped.ci_high - grouped.ci_low)


def test_one_group_shows_no_spread_to_judge_by() -> None:
    found = paired_proportions(*answers(50, 5, 5, 40), group=np.zeros(100, dtype=np.int64))
    assert (found.ci_low, found.ci_high, found.n_clusters) == (-1.0, 1.0, 1)


def test_items_that_do_not_pair_are_refused() -> None:
    baseline, artifact = answers(5, 1, 1, 3)
    with pytest.raises(ValueError, match="same items"):
        paired_proportions(baseline, artifact[:-1])
    with pytest.raises(ValueError, match="at least one"):
        paired_proportions(baseline[:0], artifact[:0])


def test_the_items_asked_for_decide_at_this_drop() -> None:
    found = paired_proportions(*answers(60, 4, 2, 34))
    needed = needed_items(found, margin=0.05)
    assert needed is not None

    def high(items: int) -> float:
        return tango_interval(0.04 * items, 0.02 * items, items, float(ndtri(0.95)))[1]

    assert high(needed) < 0.05 <= high(needed - 1)
    assert needed_items(found, margin=found.drop) is None


def test_detectable_drops_are_those_of_the_literature() -> None:
    # One-sided α .05, power .8, 5 % flips: 1.76 points of 1000 items, 1.53 of 1319.
    for n, drop in ((1000, 0.0176), (1320, 0.0153)):
        flips = n // 20
        found = paired_proportions(*answers(n // 2, flips // 2, flips // 2, n - n // 2 - 2 * (flips // 2)))
        assert detectable_drop(found) == pytest.approx(drop, abs=2e-4)


def test_recovery_weighs_tasks_alike_whatever_their_size() -> None:
    large = TaskScores(np.ones(1000), np.r_[np.ones(900), np.zeros(100)])
    small = TaskScores(np.r_[np.ones(50), np.zeros(50)], np.r_[np.ones(50), np.zeros(50)])
    found = pooled_recovery({"large": large, "small": small})
    assert found is not None
    assert found.value == pytest.approx((0.9 + 0.5) / (1.0 + 0.5))
    assert (found.tasks, found.n) == (2, 1100)
    # The small task did not flip, so the spread is that of 1000 items: √(.9·.1/999)/1.5, and its own part.
    spread = 0.9 * 0.1 / 999 + (1 - found.value) ** 2 * 0.25 / 99
    assert found.ci_high - found.value == pytest.approx(1.646 * math.sqrt(spread) / 1.5, rel=2e-3)


def test_recovery_of_nothing_is_not_known() -> None:
    assert pooled_recovery({}) is None
    assert pooled_recovery({"none": TaskScores(np.zeros(50), np.ones(50))}) is None
