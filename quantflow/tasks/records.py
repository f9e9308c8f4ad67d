"""All tasks of a recipe on one model, in whatever runtime, with the noise of a second way to run it."""

from typing import Any

from quantflow.pipeline.events import Reporter
from quantflow.tasks.adapter import RuntimeLM
from quantflow.tasks.batches import Batches, TextModel
from quantflow.tasks.params import TaskListParams, TaskSpec
from quantflow.tasks.record import TaskNoise, TaskRecord
from quantflow.tasks.run import run_task

# Items that the baseline is run on once more in another way: enough to see whether scores move at all.
NOISE_ITEMS = 64


def task_records(
    params: TaskListParams,
    tokenizer: Any,
    usual: TextModel,
    again: TextModel | None,
    reporter: Reporter,
) -> list[TaskRecord]:
    """Run all tasks on a model.

    Args:
        params: Tasks, and how items are drawn.
        tokenizer: The model's.
        usual: The model.
        again: The same model, run in another way (other batches, other pieces): some items are run on it,
            too, as the noise floor; None for none, as of artifacts, whose records then have no texts of items
            either.
        reporter: Receives progress and events, and keeps what interruptions would cost.

    Raises:
        TaskError: A task cannot be run.
    """

    def asked(spec: TaskSpec, model: TextModel, mark: str = "") -> RuntimeLM:
        work = Batches(reporter, f"{spec.name}{mark}", f"Running {spec.name}{mark}, batches")
        return RuntimeLM(model, tokenizer, work)

    records = []
    for spec in params.tasks:
        model = asked(spec, usual)
        record = run_task(spec, params, model)
        if model.truncated:
            reporter.event(
                "task-prompts-truncated",
                f"{model.truncated} prompts of {spec.name} are longer than the model's context and lost "
                "their beginning.",
                task=spec.name,
                prompts=model.truncated,
                context=model.max_length,
            )
        if again is not None:
            other = run_task(spec, params, asked(spec, again, " in other batches"), NOISE_ITEMS)
            record = record.model_copy(update={"noise": _noise(record, other)})
        else:
            record = record.without_fields()
        records.append(record)
    return records


def _noise(usual: TaskRecord, again: TaskRecord) -> TaskNoise:
    before = {item.id: item.value for item in usual.items}
    moves = [item.value - before[item.id] for item in again.items]
    return TaskNoise(
        items=len(moves), changed=sum(move != 0 for move in moves), shift=sum(moves) / len(moves)
    )
