"""Tasks are loaded by name, run, scored by lm-eval and stored item by item; what cannot be run is named."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lm_eval.tasks import TaskManager

from quantflow.errors import TaskError
from quantflow.tasks.params import TaskSpec
from quantflow.tasks.record import TaskRecord, load_tasks
from quantflow.tasks.stage import baseline
from tests.measure.inputs import source_output
from tests.reporting import RecordingReporter
from tests.tasks.toys import task_folder, tasks_params


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return task_folder(tmp_path_factory.mktemp("tasks") / "own")


def run(
    model: Path,
    root: Path,
    tasks: Path,
    *specs: TaskSpec,
    reporter: RecordingReporter | None = None,
    **changes: Any,
) -> dict[str, TaskRecord]:
    output = root / "output"
    output.mkdir()
    inputs = {"source": source_output(root / "source", model)}
    baseline(tasks_params(tasks, *specs, **changes), inputs, output, reporter or RecordingReporter())
    return load_tasks(output)


def test_every_item_has_a_score_a_group_and_what_it_takes_to_pair_it(
    tiny_llama: Path, tmp_path: Path, tasks: Path
) -> None:
    specs = [TaskSpec(name=name) for name in ("toy_next", "toy_choice", "toy_text")]
    records = run(tiny_llama, tmp_path, tasks, *specs)
    reading, choice, text = (records[spec.name] for spec in specs)
    assert reading.metric == "acc"  # the perplexity before it is no mean over items
    assert reading.value > 0.5
    assert len({item.hash for item in reading.items}) == 8
    assert {item.cluster for item in reading.items} == {f"toy_next/p{number}" for number in range(4)}
    assert choice.chance == 0.5
    assert choice.items[0].wanted == "0"
    assert (text.chance, text.metric) == (0.0, "exact_match")
    assert all("." not in item.said for item in text.items)
    assert all(record.noise is not None and record.noise.items == 8 for record in records.values())


def test_a_limit_keeps_as_many_groups_as_it_can(tiny_llama: Path, tmp_path: Path, tasks: Path) -> None:
    record = run(tiny_llama, tmp_path, tasks, TaskSpec(name="toy_next", limit=4))["toy_next"]
    assert len({item.cluster for item in record.items}) == len(record.items) == 4
    assert record.items_in_task == 8


def test_few_shot_examples_change_the_prompts(tiny_llama: Path, tmp_path: Path, tasks: Path) -> None:
    hashes = []
    for number in (0, 2):
        root = tmp_path / str(number)
        root.mkdir()
        spec = TaskSpec(name="toy_choice", num_fewshot=number)
        record = run(tiny_llama, root, tasks, spec)["toy_choice"]
        assert record.num_fewshot == number
        hashes.append({item.hash for item in record.items})
    assert not hashes[0] & hashes[1]


def test_the_chat_template_is_the_models_own(tiny_llama: Path, tmp_path: Path, tasks: Path) -> None:
    spec = TaskSpec(name="toy_text", chat_template=True, limit=2)
    assert run(tiny_llama, tmp_path, tasks, spec)["toy_text"].chat_template


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (TaskSpec(name="no_such_task"), "knows no such task"),
        (TaskSpec(name="toy_next", metric="perplexity"), "no metric 'perplexity' that is a mean"),
        (TaskSpec(name="toy_next", cluster="author"), "no field 'author'"),
    ],
)
def test_what_cannot_be_run_is_named(
    tiny_llama: Path,
    tmp_path: Path,
    tasks: Path,
    spec: TaskSpec,
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # lm-eval's own index of ten thousand tasks takes longer than all else here.
    few = partial(TaskManager, include_path=str(tasks), include_defaults=False)
    monkeypatch.setattr("quantflow.tasks.load.TaskManager", lambda **asked: few())
    with pytest.raises(TaskError, match=complaint) as caught:
        run(tiny_llama, tmp_path, tasks, spec)
    assert caught.value.where == spec.name
    assert caught.value.hint


def test_a_task_that_runs_the_models_code_is_refused_unless_it_may(
    tiny_llama: Path, tmp_path: Path, tasks: Path
) -> None:
    (tmp_path / "own").mkdir()
    for path in tasks.iterdir():
        (tmp_path / "own" / path.name).write_bytes(path.read_bytes())
    task = tmp_path / "own" / "text.yaml"
    task.write_text(task.read_text() + "unsafe_code: true\n")
    with pytest.raises(TaskError, match="runs code that the model writes"):
        run(tiny_llama, tmp_path, tmp_path / "own", TaskSpec(name="toy_text"))


def test_a_task_that_fails_half_way_is_an_error_and_leaves_nothing_to_judge(
    tiny_llama: Path, tmp_path: Path, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def failing(self: object, document: object, results: object) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise ZeroDivisionError("no scores left")
        return {"acc": 1.0}

    monkeypatch.setattr("lm_eval.api.task.ConfigurableTask.process_results", failing)
    with pytest.raises(TaskError, match=r"the task failed: ZeroDivisionError: no scores left"):
        run(tiny_llama, tmp_path, tasks, TaskSpec(name="toy_next"))
    assert not (tmp_path / "output" / "tasks.json").exists()
