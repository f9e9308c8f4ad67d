"""A task may drop by so much, item by item; what was not asked alike, or cannot be told, never passes."""

import random
from typing import Any

import pytest

from quantflow.gate.asked import TaskMargin
from quantflow.gate.result import CriterionResult
from quantflow.gate.tasks import task_criterion
from quantflow.gate.verdict import Verdict
from quantflow.tasks.record import TaskItem, TaskNoise, TaskRecord
from quantflow.tasks.value import task_value


def record(values: list[float], *, chance: float = 0.25, per_group: int = 1, **changes: Any) -> TaskRecord:
    items = tuple(
        TaskItem(id=f"t/{n}", hash=f"h{n}", cluster=f"c{n // per_group}", value=value, said="a", wanted="b")
        for n, value in enumerate(values)
    )
    settings: dict[str, Any] = {
        "name": "t",
        "metric": "acc",
        "higher_is_better": True,
        "chance": chance,
        "num_fewshot": 0,
        "chat_template": False,
        "version": "1",
        "items_in_task": 5000,
        "items": items,
        "batches": "same",
    }
    return TaskRecord.model_validate({**settings, **changes})


def judged(
    before: TaskRecord | None, after: TaskRecord | None, max_drop: float = 0.05, *, required: bool = True
) -> CriterionResult:
    return task_criterion("int4", TaskMargin(task="t", max_drop=max_drop, required=required), before, after)


def answers(share: float, count: int = 400) -> list[float]:
    return [1.0 if n < share * count else 0.0 for n in range(count)]


def flipped(values: list[float], *, lost: int, gained: int = 0) -> list[float]:
    right = [n for n, value in enumerate(values) if value][:lost]
    wrong = [n for n, value in enumerate(values) if not value][:gained]
    return [1 - value if n in {*right, *wrong} else value for n, value in enumerate(values)]


def test_a_task_that_keeps_its_score_passes_and_says_how_many_items_flipped() -> None:
    before = answers(0.7)
    result = judged(record(before), record(flipped(before, lost=3, gained=2)))
    assert result.verdict is Verdict.PASS
    assert result.delta == pytest.approx(1 / 400)
    assert (result.name, result.slice, result.metric) == ("tasks", "t", "acc")
    assert "3 items lost, 2 gained of 400" in result.reason
    assert result.detectable is not None


def test_a_task_that_loses_more_than_allowed_fails() -> None:
    before = answers(0.7)
    assert judged(record(before), record(flipped(before, lost=60))).verdict is Verdict.FAIL


def test_a_drop_that_could_be_either_is_inconclusive_and_says_how_many_items_would_tell() -> None:
    before = answers(0.7)
    result = judged(record(before), record(flipped(before, lost=26, gained=8)))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.needed_clusters is not None
    assert result.needed_clusters > 400


def test_items_of_one_group_are_one_piece_of_evidence() -> None:
    choose = random.Random(0)
    before = [float(choose.random() < 0.7) for _ in range(400)]
    after = [value if n // 10 % 8 else 0.0 for n, value in enumerate(before)]
    alone = judged(record(before), record(after), 0.2)
    grouped = judged(record(before, per_group=10), record(after, per_group=10), 0.2)
    assert (alone.n_clusters, grouped.n_clusters) == (400, 40)
    assert alone.ci_high is not None
    assert grouped.ci_high is not None
    assert grouped.ci_high > alone.ci_high


def test_few_groups_are_inconclusive_however_alike_the_scores_are() -> None:
    same = record(answers(0.7), per_group=20)
    assert judged(same, same).verdict is Verdict.INCONCLUSIVE


def test_a_baseline_that_guesses_is_inconclusive_and_not_kept() -> None:
    same = record(answers(0.27))
    result = judged(same, same)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "no better than the 0.25 of guessing" in result.reason


def test_a_metric_of_which_less_is_better_is_known_as_such() -> None:
    errors = answers(0.2)
    more = [1.0 - value for value in flipped([1 - e for e in errors], lost=60)]
    worse = judged(
        record(errors, chance=0.0, higher_is_better=False), record(more, higher_is_better=False, chance=0.0)
    )
    assert worse.delta == pytest.approx(60 / 400)
    assert worse.verdict is Verdict.FAIL


def test_scores_that_are_no_proportion_are_judged_by_their_mean_difference() -> None:
    before = [0.3 + 0.001 * (n % 300) for n in range(300)]
    after = [value - 0.2 for value in before]
    assert judged(record(before, chance=0), record(after, chance=0)).verdict is Verdict.FAIL
    assert judged(record(before, chance=0), record(before, chance=0)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"batches": "other"}, "tokenizers differ"),
        ({"num_fewshot": 5}, "differ in num_fewshot"),
        ({"metric": "acc_norm"}, "differ in metric"),
        ({"items": record(answers(0.7, 399)).items}, "different items"),
    ],
)
def test_what_was_not_asked_alike_is_an_error(changes: dict[str, Any], complaint: str) -> None:
    before = answers(0.7)
    result = judged(record(before), record(before, **changes))
    assert result.verdict is Verdict.ERROR
    assert complaint in result.reason


def test_another_prompt_is_an_error_and_names_the_item() -> None:
    before = record(answers(0.7))
    other = before.items[7].model_copy(update={"hash": "of another prompt"})
    after = before.model_copy(update={"items": (*before.items[:7], other, *before.items[8:])})
    result = judged(before, after)
    assert result.verdict is Verdict.ERROR
    assert "t/7" in result.reason


def test_a_missing_side_is_an_error() -> None:
    assert judged(record(answers(0.7)), None).verdict is Verdict.ERROR
    assert judged(None, record(answers(0.7))).verdict is Verdict.ERROR


def test_an_advisory_task_does_not_decide_and_its_noise_stands_beside_it() -> None:
    noise = TaskNoise(items=64, changed=1, shift=-1 / 64)
    before = record(answers(0.7), noise=noise)
    result = judged(before, record(answers(0.7)), required=False)
    assert not result.required
    assert result.noise_floor == pytest.approx(1 / 64)


def test_flips_are_kept_for_the_reader_the_lost_ones_first() -> None:
    before = answers(0.7)
    value = task_value(record(before), record(flipped(before, lost=2, gained=1)))
    assert (value.lost, value.gained) == (2, 1)
    assert [flip.lost for flip in value.flips] == [True, True, False]
