"""Which option each unit gets within a budget."""

from itertools import product

import pytest

from quantflow.remedies.choose import Rule, choose, fixed
from quantflow.remedies.options import Option

ALL = Rule("all", lambda option: True)
SIZES = {"wide": (100, 8), "narrow": (10, 8)}
SCORES = {
    "wide": {Option(channels=0): 8.0, Option(channels=1): 4.0, Option(channels=2): 3.0, Option(0.5, 2): 2.5},
    "narrow": {Option(channels=0): 5.0, Option(channels=1): 4.9, Option(channels=2): 1.0},
}


def total(chosen: dict[str, Option]) -> float:
    return sum(SCORES[unit][option] for unit, option in chosen.items())


def spent(chosen: dict[str, Option]) -> int:
    return sum(option.channels * SIZES[unit][0] for unit, option in chosen.items())


@pytest.mark.parametrize("budget", [0, 10, 20, 100, 120, 219, 220, 1000])
def test_no_other_choice_within_the_budget_is_better(budget: float) -> None:
    chosen = choose(SCORES, SIZES, budget, ALL)
    assert spent(chosen) <= budget
    for other in product(*(SCORES[unit] for unit in SCORES)):
        own = dict(zip(SCORES, other, strict=True))
        if spent(own) <= spent(chosen):
            assert total(own) >= total(chosen)


def test_a_step_that_gains_nothing_by_itself_is_taken_with_the_next() -> None:
    assert choose(SCORES, SIZES, 20, ALL)["narrow"] == Option(channels=2)


def test_a_step_that_does_not_fit_leaves_room_for_others() -> None:
    chosen = choose(SCORES, SIZES, 99, ALL)
    assert chosen == {"wide": Option(), "narrow": Option(channels=2)}


def test_options_that_a_rule_does_not_allow_are_not_taken() -> None:
    chosen = choose(SCORES, SIZES, 1000, Rule("unsmoothed", lambda option: not option.exponent))
    assert chosen["wide"] == Option(channels=2)
    assert choose(SCORES, SIZES, 1000, ALL)["wide"] == Option(0.5, 2)


def test_more_channels_that_do_harm_are_not_taken() -> None:
    scores = {"unit": {Option(channels=0): 1.0, Option(channels=4): 2.0}}
    assert choose(scores, {"unit": (1, 8)}, 1000, ALL) == {"unit": Option()}


def test_a_budget_below_zero_leaves_nothing_apart() -> None:
    assert spent(choose(SCORES, SIZES, -5, ALL)) == 0


def test_one_rule_for_all_has_as_many_channels_as_the_budget_takes() -> None:
    wanted = dict.fromkeys(SCORES, Option(channels=2))
    assert fixed(SCORES, SIZES, 220, wanted) == wanted
    assert fixed(SCORES, SIZES, 219, wanted) == dict.fromkeys(SCORES, Option(channels=1))
    assert fixed(SCORES, SIZES, -1, wanted) == dict.fromkeys(SCORES, Option())


def test_one_rule_for_all_smooths_what_can_be_smoothed() -> None:
    wanted = dict.fromkeys(SCORES, Option(exponent=0.5))
    assert fixed(SCORES, SIZES, 0, wanted) == {"wide": Option(0.5), "narrow": Option()}


def test_a_rule_gives_up_two_products_where_the_budget_does_not_take_them() -> None:
    twice = Option(twice=True)
    scores = {unit: {**own, twice: 0.1} for unit, own in SCORES.items()}
    wanted = {"wide": twice, "narrow": Option(channels=2)}
    assert fixed(scores, SIZES, 220, wanted) == wanted
    assert fixed(scores, SIZES, 219, wanted) == {"wide": twice, "narrow": Option(channels=1)}
    assert fixed(scores, SIZES, 199, wanted) == {"wide": Option(), "narrow": Option(channels=2)}


def test_two_products_cost_a_quarter_of_the_unit_in_floating_point() -> None:
    twice = Option(twice=True)
    scores = {"unit": {Option(): 1.0, Option(channels=1): 0.9, twice: 0.1}}
    assert choose(scores, {"unit": (10, 8)}, 19, ALL) == {"unit": Option()}
    assert choose(scores, {"unit": (10, 8)}, 20, ALL) == {"unit": twice}
    once = Rule("once", lambda option: not option.twice)
    assert choose(scores, {"unit": (10, 8)}, 20, once) == {"unit": Option(channels=1)}
