"""What a task gave for one model: one score per item, with what it takes to pair it with another model's."""

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

TASKS_FILE = "tasks.json"


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TaskItem(_Value):
    """One item.

    Attributes:
        id: Task and place in it, `gsm8k/17`.
        hash: Of its document, its prompts and its target: equal where two models were asked the same.
        cluster: What it shares with the items that are no independent evidence beside it.
        value: Its score.
        said: What the model answered.
        wanted: What the task holds right.
        fields: The texts of its document, as the task's data has them; none of an artifact's items.
    """

    id: str
    hash: str
    cluster: str
    value: float
    said: str
    wanted: str
    fields: tuple[str, ...] = ()


class TaskNoise(_Value):
    """The same model on some of the items in other batches.

    Attributes:
        items: How many.
        changed: How many of their scores came out otherwise.
        shift: Mean of the scores in other batches minus that in the usual ones.
    """

    items: int
    changed: int
    shift: float


class TaskRecord(_Value):
    """One task of one model.

    Attributes:
        name: As in the recipe.
        metric: The metric, with its filter where the task has several: `exact_match,strict-match`.
        higher_is_better: Its direction, as the task says.
        chance: What guessing scores.
        num_fewshot: Solved examples before each item.
        chat_template: Whether prompts are in the model's chat template.
        version: Of the task.
        items_in_task: How many items the task has, drawn or not.
        items: Those that were run.
        batches: Hash of what went into every batch.
        noise: The baseline's scores in other batches; None for an artifact.
    """

    name: str
    metric: str
    higher_is_better: bool
    chance: float
    num_fewshot: int
    chat_template: bool
    version: str
    items_in_task: int
    items: tuple[TaskItem, ...]
    batches: str
    noise: TaskNoise | None = None

    @property
    def value(self) -> float:
        """The mean score."""
        return sum(item.value for item in self.items) / len(self.items)

    def without_fields(self) -> "TaskRecord":
        """The same without the texts of its items' documents, which one record has to hold."""
        bare = tuple(item.model_copy(update={"fields": ()}) for item in self.items)
        return self.model_copy(update={"items": bare})


def save_tasks(output: Path, records: Sequence[TaskRecord]) -> None:
    """Write tasks.json."""
    content = [record.model_dump(mode="json") for record in records]
    text = json.dumps(content, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    (output / TASKS_FILE).write_text(text + "\n", encoding="utf-8")


def load_tasks(stage_output: Path) -> dict[str, TaskRecord]:
    """Read what `save_tasks` wrote, by the tasks' names."""
    content = json.loads((stage_output / TASKS_FILE).read_text(encoding="utf-8"))
    records = [TaskRecord.model_validate_json(json.dumps(record)) for record in content]
    return {record.name: record for record in records}
