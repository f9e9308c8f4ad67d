"""Making estimates exact until the choice no longer hangs on them."""

from collections.abc import Sequence

from quantflow.sensitivity.measured import Key
from quantflow.sensitivity.settle import Choose, Scores, Settling, in_doubt, settle
from tests.reporting import RecordingReporter

P = "int4"


def keys(count: int) -> list[Key]:
    return [(f"unit{number:02d}", P) for number in range(count)]


def worst(count: int) -> Choose:
    """Chooses the units that cost most."""

    def choose(scores: Scores) -> frozenset[Key]:
        return frozenset(sorted(scores, key=lambda key: -scores[key])[:count])

    return choose


class Truth:
    """Exact scores, and which were asked for."""

    def __init__(self, values: dict[Key, float]) -> None:
        self.values = values
        self.asked: list[Key] = []

    def __call__(self, asked: Sequence[Key]) -> dict[Key, float]:
        self.asked += asked
        return {key: self.values[key] for key in asked}


# Far apart but for the fourth to the seventh, around the cut.
SPREAD = (9.0, 8.0, 7.0, 1.1, 1.05, 0.95, 0.9, 0.1, 0.05, 0.045)


def test_units_far_from_the_cut_are_left_to_their_estimates() -> None:
    estimates = dict(zip(keys(10), SPREAD, strict=True))
    truth = Truth({key: value * 1.2 for key, value in estimates.items()})
    state = settle(estimates, [worst(5)], truth, len, allowance=100, reporter=RecordingReporter())
    assert state.settled
    assert set(truth.asked) <= set(keys(10)[3:7])
    assert len(truth.asked) >= 2


def test_estimates_that_mislead_at_the_cut_are_put_right() -> None:
    estimates = dict(zip(keys(10), SPREAD, strict=True))
    values = dict(estimates)
    values[keys(10)[4]], values[keys(10)[5]] = 0.8, 1.0
    state = settle(estimates, [worst(5)], Truth(values), len, allowance=100, reporter=RecordingReporter())
    assert worst(5)(state.scores) == worst(5)(values)


def test_it_stops_when_the_allowance_is_spent_and_says_so() -> None:
    estimates = dict(zip(keys(12), [1.0 + 0.01 * n for n in range(12)], strict=True))
    truth = Truth(dict(estimates))
    state = settle(estimates, [worst(6)], truth, len, allowance=5, reporter=RecordingReporter())
    assert not state.settled
    assert len(truth.asked) == 5


def test_nothing_is_asked_where_no_score_could_change_the_choice() -> None:
    truth = Truth({})
    state = settle(
        dict.fromkeys(keys(6), 0.3),
        [lambda scores: "all"],
        truth,
        len,
        allowance=100,
        reporter=RecordingReporter(),
    )
    assert state.settled
    assert not truth.asked


def test_a_unit_that_cannot_matter_is_never_in_doubt() -> None:
    estimates = dict(zip(keys(3), (1.0, 0.9, 0.0), strict=True))
    assert keys(3)[2] not in in_doubt(Settling(estimates), [worst(1)], RecordingReporter())


def test_estimates_are_put_on_the_scale_of_exact_scores_once_enough_are_known() -> None:
    estimates = dict(zip(keys(10), SPREAD, strict=True))
    state = Settling(estimates, exact={key: estimates[key] * 1.5 for key in keys(10)[:4]})
    assert state.scores[keys(10)[9]] == SPREAD[9] * state.ratio(P)
    assert round(state.ratio(P), 6) == 1.5
    few = Settling(estimates, exact={key: estimates[key] * 1.5 for key in keys(10)[:3]})
    assert few.ratio(P) == 1.0


def test_every_choice_that_the_scores_are_for_is_settled() -> None:
    estimates = dict(zip(keys(10), SPREAD, strict=True))
    truth = Truth(dict(estimates))
    settle(estimates, [worst(5), worst(9)], truth, len, allowance=100, reporter=RecordingReporter())
    assert set(truth.asked) & set(keys(10)[7:])
