"""A task's scores of an artifact beside the baseline's, for the report."""

from pydantic import BaseModel, ConfigDict

from quantflow.tasks.record import TaskItem, TaskRecord

# Items whose score moved that a report lists.
SHOWN = 40


class Flip(BaseModel):
    """An item that the two sides score differently.

    Attributes:
        id: Task and place in it.
        baseline: What the baseline answered.
        artifact: What the artifact answered.
        wanted: What the task holds right.
        lost: Whether the artifact's score is the worse one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    baseline: str
    artifact: str
    wanted: str
    lost: bool


class TaskValue(BaseModel):
    """One task.

    Attributes:
        metric: The metric, with its filter where the task has several.
        higher_is_better: Its direction.
        baseline: The baseline's mean score.
        value: The artifact's.
        chance: What guessing scores.
        n: Items run.
        n_clusters: Groups that they belong to.
        items_in_task: Items that the task has.
        num_fewshot: Solved examples before each item.
        lost: Items whose score is worse than the baseline's.
        gained: Items whose score is better.
        flips: Some of both, the lost first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: str
    higher_is_better: bool
    baseline: float
    value: float
    chance: float
    n: int
    n_clusters: int
    items_in_task: int
    num_fewshot: int
    lost: int
    gained: int
    flips: tuple[Flip, ...]


class RecoveryValue(BaseModel):
    """How much of the baseline's scores an artifact keeps over all tasks; a description, not judged.

    Attributes:
        value: Sum over tasks of the artifact's mean scores over that of the baseline's, each task with the
            same weight.
        ci_low: Lower end of its 90 % interval; None where a task has a single group of items.
        ci_high: Upper end, likewise.
        tasks: Tasks of whose metric more is better.
        n: Their items.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float
    ci_low: float | None
    ci_high: float | None
    tasks: int
    n: int


def task_value(baseline: TaskRecord, measured: TaskRecord) -> TaskValue:
    """Put two models' scores of the same items side by side.

    Args:
        baseline: The lossless model's.
        measured: The artifact's.
    """
    sign = 1 if baseline.higher_is_better else -1
    moved = [
        (sign * (after.value - before.value), before, after)
        for before, after in zip(baseline.items, measured.items, strict=True)
        if after.value != before.value
    ]
    moved.sort(key=lambda entry: entry[0])
    return TaskValue(
        metric=baseline.metric,
        higher_is_better=baseline.higher_is_better,
        baseline=baseline.value,
        value=measured.value,
        chance=baseline.chance,
        n=len(baseline.items),
        n_clusters=len({item.cluster for item in baseline.items}),
        items_in_task=baseline.items_in_task,
        num_fewshot=baseline.num_fewshot,
        lost=sum(change < 0 for change, _, _ in moved),
        gained=sum(change > 0 for change, _, _ in moved),
        flips=tuple(_flip(before, after, lost=change < 0) for change, before, after in moved[:SHOWN]),
    )


def _flip(before: TaskItem, after: TaskItem, *, lost: bool) -> Flip:
    return Flip(id=before.id, baseline=before.said, artifact=after.said, wanted=before.wanted, lost=lost)
