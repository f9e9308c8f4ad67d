"""A change of level is found where there is one, and seldom where there is none."""

import numpy as np

from quantflow.history.trend import changes


def test_a_series_that_repeats_itself_has_no_change() -> None:
    assert changes([0.13] * 30) == ()
    assert changes([0.13]) == changes([]) == ()


def test_any_difference_in_a_series_without_noise_is_a_change() -> None:
    (change,) = changes([0.13] * 20 + [0.1301] * 3)
    assert change.at == 20
    assert (round(change.before, 6), round(change.after, 6)) == (0.13, 0.1301)


def test_a_jump_of_the_last_run_is_seen() -> None:
    noise = np.random.default_rng(0).normal(0, 0.001, 30)
    values = [*(0.13 + noise), 0.15]
    assert [change.at for change in changes(values)] == [30]


def test_levels_are_found_where_they_begin() -> None:
    noise = np.random.default_rng(1).normal(0, 0.01, 90)
    values = np.repeat([1.0, 1.2, 0.9], 30) + noise
    assert [change.at for change in changes(list(values))] == [30, 60]


def test_noise_alone_seldom_looks_like_a_change() -> None:
    rng = np.random.default_rng(2)
    found = sum(bool(changes(list(rng.normal(0, 1, size)))) for size in (10, 30, 100) for _ in range(200))
    assert found <= 0.05 * 600
