"""Tasks by name: lm-eval's own, whose data comes from the hub, or those of a folder of YAML."""

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import lm_eval.api.task
from lm_eval.tasks import TaskManager

from quantflow.errors import TaskError
from quantflow.tasks.params import TaskSpec

# lm-eval's default, so that few-shot examples are those of everybody else's runs.
FEWSHOT_SEED = 1234
# What lm-eval asks for in the environment before code of a model is run.
CODE_SWITCH = "HF_ALLOW_CODE_EVAL"


def load_task(spec: TaskSpec, tasks_dir: Path | None) -> Mapping[str, Any]:
    """Load a task, or all of a group, with its documents.

    Args:
        spec: Which, and with how many solved examples.
        tasks_dir: Folder of local tasks; a task in it goes before one of lm-eval of the same name.

    Returns:
        Name → lm-eval's task.

    Raises:
        TaskError: There is no such task, its data cannot be had, or it runs code and may not.
    """
    try:
        tasks = _found(spec.name, tasks_dir)
    except TaskError:
        raise
    except Exception as cause:  # a YAML, a loader or the hub may fail in any way
        raise TaskError(
            f"the task cannot be loaded: {type(cause).__name__}: {cause}",
            where=spec.name,
            hint="A task of lm-eval fetches its data from the hub once; local tasks name theirs under "
            "dataset_kwargs.data_files, relative to gate.tasks_dir.",
        ) from cause
    for task in tasks.values():
        if getattr(task, "UNSAFE_CODE", False) and not spec.execute_code:
            raise TaskError(
                "the task runs code that the model writes",
                where=spec.name,
                hint="Say execute_code: true beside its name if it may, where it can do no harm.",
            )
        fewshot = task.get_config("num_fewshot") if spec.num_fewshot is None else spec.num_fewshot
        task.set_config(key="num_fewshot", value=fewshot or 0)
        task.set_fewshot_seed(seed=FEWSHOT_SEED)
    return tasks


def _found(name: str, tasks_dir: Path | None) -> Mapping[str, Any]:
    managers: list[TaskManager] = []
    if tasks_dir is not None:
        managers.append(TaskManager(include_path=str(tasks_dir), include_defaults=False))
    if not any(name in manager.all_tasks for manager in managers):
        managers.append(TaskManager())
    manager = managers[-1]
    if name not in manager.all_tasks:
        own = ", ".join(managers[0].all_tasks) if tasks_dir is not None else ""
        raise TaskError(
            "lm-eval knows no such task",
            where=name,
            hint=f"Local tasks: {own}." if own else "`lm-eval ls tasks` lists those of lm-eval.",
        )
    # Relative data files are those beside the tasks, wherever the command was given.
    with contextlib.chdir(tasks_dir) if tasks_dir is not None else contextlib.nullcontext():
        return dict(manager.load([name])["tasks"])


def clusters_of(task: Any, spec: TaskSpec, name: str) -> list[str]:
    """What groups each document of a task, [documents]; its own place where nothing does.

    Raises:
        TaskError: The field that should tell is not in the documents.
    """
    field = spec.cluster or (task.get_config("metadata") or {}).get("cluster")
    documents: Sequence[Any] = task.eval_docs
    if field is None:
        return [f"{name}/{place}" for place in range(len(documents))]
    for document in documents:
        if field not in document:
            raise TaskError(
                f"its documents have no field {field!r} to group them by",
                where=spec.name,
                hint=f"They have {', '.join(map(str, document))}.",
            )
    return [f"{name}/{document[field]}" for document in documents]


@contextlib.contextmanager
def quiet(*, may_execute: bool) -> Iterator[None]:
    """Keep lm-eval and datasets from drawing bars of their own; let code run where it may.

    What they would warn of and matters is raised here as an error or an event.
    """
    logger, bars = logging.getLogger("lm_eval"), lm_eval.api.task.tqdm
    level = logger.level
    before = os.environ.get(CODE_SWITCH)
    datasets.disable_progress_bars()
    logger.setLevel(logging.ERROR)
    lm_eval.api.task.tqdm = lambda items, **options: items
    os.environ[CODE_SWITCH] = "1" if may_execute else "0"
    try:
        yield
    finally:
        datasets.enable_progress_bars()
        logger.setLevel(level)
        lm_eval.api.task.tqdm = bars
        os.environ.pop(CODE_SWITCH)
        if before is not None:
            os.environ[CODE_SWITCH] = before
