"""The solver and the policies: held to brute force, to ties, and to limits that nothing can meet."""

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quantflow.errors import QuantizationError
from quantflow.sensitivity.assign import (
    WORTH,
    Choice,
    Limits,
    by_budget,
    by_threshold,
    nothing_spared,
    top_k,
    total_bytes,
    total_kl,
    total_spared,
)
from quantflow.sensitivity.frontier import frontier, next_step
from quantflow.sensitivity.ladder import UnitLadder, fixed, ladders
from tests.sensitivity.scans import ladder, scan, score, two_rungs


@st.composite
def some_units(draw: st.DrawFn) -> tuple[UnitLadder, ...]:
    """Up to six units of up to three rungs; few values, so that there are ties."""
    units = []
    for number in range(draw(st.integers(1, 6))):
        rungs = draw(st.integers(1, 2))
        kl = draw(
            st.lists(st.sampled_from([0.0, 1e-7, 0.001, 0.01, 0.0123, 0.5]), min_size=rungs, max_size=rungs)
        )
        sizes = sorted(draw(st.lists(st.integers(1, 50), min_size=rungs + 1, max_size=rungs + 1)))
        units.append(ladder(f"u{number}", *kl, weights=draw(st.sampled_from([7, 10, 1000])), bytes=sizes))
    return tuple(units)


def worth(units: tuple[UnitLadder, ...], choice: Choice) -> float:
    total = total_kl(units, nothing_spared(units))
    upper = sum(unit.weights for unit in units)
    return total_kl(units, choice) / total + WORTH * total_spared(units, choice) / upper


@settings(max_examples=150, deadline=None)
@given(some_units(), st.floats(0, 1), st.floats(0, 1), st.booleans(), st.booleans())
def test_no_other_assignment_within_the_limits_is_better(
    units: tuple[UnitLadder, ...], spared: float, room: float, by_bytes: bool, by_spared: bool
) -> None:
    first = total_bytes(units, nothing_spared(units))
    last = sum(unit.rungs[-1].bytes for unit in units)
    limits = Limits(
        spared=int(spared * sum(unit.weights for unit in units)) if by_spared else None,
        bytes=first + int(room * (last - first)) if by_bytes else None,
    )
    chosen = by_budget(units, limits)

    def allowed(choice: Choice) -> bool:
        return (limits.spared is None or total_spared(units, choice) <= limits.spared) and (
            limits.bytes is None or total_bytes(units, choice) <= limits.bytes
        )

    assert allowed(chosen)
    if total_kl(units, nothing_spared(units)) == 0:
        assert chosen == nothing_spared(units)
        return
    every = product(*(range(len(unit.rungs)) for unit in units))
    best = min(worth(units, choice) for choice in every if allowed(choice))
    assert worth(units, chosen) == pytest.approx(best, rel=1e-6, abs=1e-9)


def test_the_limit_may_be_used_to_the_last_weight_and_not_exceeded_by_one() -> None:
    units = two_rungs({"a": 0.3, "b": 0.2, "c": 0.1})
    assert by_budget(units, Limits(spared=2000)) == (1, 1, 0)
    assert by_budget(units, Limits(spared=1999)) == (1, 0, 0)
    assert by_budget(units, Limits(bytes=1500 + 3000)) == (1, 1, 0)
    assert by_budget(units, Limits(bytes=1500 + 2999)) == (1, 0, 0)


def test_a_large_model_s_weights_are_counted_to_the_last_one() -> None:
    """Numbers beyond what a tolerance of a millionth would tell apart."""
    units = tuple(
        ladder(f"u{n}", 0.1 + n / 1000, weights=w, bytes=(w // 2, 2 * w))
        for n, w in enumerate([3_000_000_001, 2_999_999_999, 5_000_000_003])
    )
    assert by_budget(units, Limits(spared=6_000_000_000)) == (1, 1, 0)
    assert by_budget(units, Limits(spared=5_999_999_999)) == (0, 0, 1)


def test_small_units_beat_a_large_one_that_takes_away_more_than_each_of_them() -> None:
    units = (
        ladder("large", 0.5, weights=1000, bytes=(500, 2000)),
        ladder("small", 0.3, weights=500, bytes=(250, 1000)),
        ladder("other", 0.3, weights=500, bytes=(250, 1000)),
    )
    assert by_budget(units, Limits(spared=1000)) == (0, 1, 1)


def test_of_units_that_are_alike_the_first_are_spared() -> None:
    units = two_rungs(dict.fromkeys("abcdef", 0.1))
    assert by_budget(units, Limits(spared=2000)) == (1, 1, 0, 0, 0, 0)
    assert top_k(units, 2) == (1, 1, 0, 0, 0, 0)


def test_a_unit_that_takes_nothing_away_is_not_spared_for_the_room_s_sake() -> None:
    units = two_rungs({"a": 0.3, "b": 0.0, "c": 1e-9})
    assert by_budget(units, Limits(spared=3000)) == (1, 0, 0)
    assert by_budget(two_rungs({"a": 0.0}), Limits(spared=1000)) == (0,)


def test_a_middle_rung_counts_as_the_part_of_the_saving_that_it_gives_up() -> None:
    (unit,) = ladders(scan([score("u", 0.5, "w8a8"), score("u", 0.001, "w8")]), ("w8a8", "w8"), "float32")
    assert [(rung.precision, rung.spared) for rung in unit.rungs] == [
        ("w8a8", 0),
        ("w8", 500),
        ("float32", 1000),
    ]
    # Weight-only keeps nearly all of what the source's dtype would give, at half the price.
    other = ladder("v", 0.4, 0.001)
    assert by_budget((ladder("u", 0.5, 0.001), other), Limits(spared=1000)) == (1, 1)


def test_bytes_below_what_is_possible_are_refused_with_what_is_possible() -> None:
    with pytest.raises(QuantizationError, match="are 1000 bytes in their smallest precisions, and 999"):
        by_budget(two_rungs({"a": 0.1, "b": 0.2}), Limits(bytes=999))


def test_units_that_have_no_choice_stay_quantized() -> None:
    units = fixed(two_rungs({"a": 0.3, "b": 0.2}), quantized={"a"})
    assert by_budget(units, Limits(spared=2000)) == (0, 1)
    assert by_threshold(units, 0.01) == (0, 1)
    assert top_k(units, 1) == (0, 1)
    assert [point.choice for point in frontier(units)] == [(0, 0), (0, 1)]
    assert by_budget(units[:1], Limits(spared=2000)) == (0,)


def test_a_threshold_is_the_most_that_a_unit_may_cost() -> None:
    units = two_rungs({"a": 0.011, "b": 0.01, "c": 0.009})
    assert by_threshold(units, 0.01) == (1, 0, 0)
    assert by_threshold((ladder("u", 0.5, 0.009), ladder("v", 0.5, 0.02)), 0.01) == (1, 2)


def test_nothing_to_assign_is_an_empty_choice() -> None:
    assert by_budget((), Limits(spared=0)) == by_threshold((), 0.1) == top_k((), 3) == ()
    assert [point.kl for point in frontier(())] == [0.0]
    assert next_step((), ()) is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_is_refused_with_its_unit(bad: float) -> None:
    with pytest.raises(QuantizationError, match="which nothing can be decided by") as caught:
        ladders(scan([score("a", 0.1), score("b", bad)]), ("int4",), "bfloat16")
    assert caught.value.where == "b"


def test_rounding_below_zero_is_zero_and_a_missing_score_is_refused() -> None:
    (unit,) = ladders(scan([score("a", -1e-12)]), ("int4",), "bfloat16")
    assert unit.own.kl == 0.0
    with pytest.raises(QuantizationError, match="no score of it in int8"):
        ladders(scan([score("a", 0.1)]), ("int4", "int8"), "bfloat16")
    assert ladders(scan([score("lm_head", 0.1, "w8a8")]), ("int4",), "bfloat16") == ()


@settings(max_examples=60, deadline=None)
@given(some_units())
def test_every_point_of_the_frontier_is_the_best_that_spares_as_much(units: tuple[UnitLadder, ...]) -> None:
    points = frontier(units)
    assert points[0].choice == nothing_spared(units)
    every = list(product(*(range(len(unit.rungs)) for unit in units)))
    for point, following in zip(points, [*points[1:], None], strict=True):
        assert (point.kl, point.spared) == (total_kl(units, point.choice), total_spared(units, point.choice))
        best = min(total_kl(units, c) for c in every if total_spared(units, c) <= point.spared)
        assert point.kl == pytest.approx(best, abs=1e-12)
        if following is None:
            assert next_step(units, point.choice) is None
        else:
            assert next_step(units, point.choice) == following.step
            assert following.kl < point.kl
            assert following.spared > point.spared


def test_under_a_limit_a_step_that_does_not_fit_makes_room_for_later_ones() -> None:
    units = (
        ladder("large", 0.9, weights=1000, bytes=(500, 2000)),
        ladder("small", 0.3, weights=500, bytes=(250, 1000)),
        ladder("other", 0.2, weights=500, bytes=(250, 1000)),
    )
    assert [point.choice for point in frontier(units, 999)] == [(0, 0, 0), (0, 1, 0)]
    assert [point.choice for point in frontier(units, 1500)] == [(0, 0, 0), (1, 0, 0), (1, 1, 0)]
    # Of a unit whose first step does not fit no later one is taken.
    steep = (ladder("u", 0.5, 0.4), ladder("v", 0.1, weights=400, bytes=(1, 2)))
    assert [point.choice for point in frontier(steep, 450)] == [(0, 0), (0, 1)]


def test_a_last_rung_takes_what_the_artifact_stores_it_in_and_nothing_where_it_is_there_anyway() -> None:
    record = scan([score("u", 0.5, "w8a8"), score("lm_head", 0.4, "w8a8")])
    unit, head = ladders(record, ("w8a8",), "float32", {"lm_head"})
    assert [rung.bytes for rung in unit.rungs] == [500, 4000]
    assert [rung.bytes for rung in head.rungs] == [500, 0]
    assert [rung.bytes for rung in ladders(record, ("w8a8",), "float16")[0].rungs] == [500, 2000]
    # What the head gives back pays for a part of the other unit, but not of all of it.
    assert by_budget((unit, head), Limits(bytes=4000)) == (1, 1)
    assert by_budget((unit, head), Limits(bytes=3999)) == (0, 1)
