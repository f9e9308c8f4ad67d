"""The tasks of calib_data/tasks are what their page says, and ask what they look like."""

import ast
from pathlib import Path

import pytest

from quantflow.tasks.load import clusters_of, load_task, quiet
from quantflow.tasks.params import TaskSpec

FOLDER = Path(__file__).parents[2] / "calib_data" / "tasks"


@pytest.mark.parametrize(
    ("name", "items", "groups"),
    [("northlight_reading", 240, 60), ("northlight_reading_zh", 108, 36), ("code_reading", 240, 40)],
)
def test_a_task_has_its_items_in_its_groups(name: str, items: int, groups: int) -> None:
    spec = TaskSpec(name=name)
    with quiet(may_execute=False):
        (task,) = load_task(spec, FOLDER).values()
        clusters = clusters_of(task, spec, name)
    assert (len(clusters), len(set(clusters))) == (items, groups)
    assert len({str(sorted(document.items())) for document in task.eval_docs}) == items


@pytest.mark.parametrize("name", ["northlight_reading", "northlight_reading_zh"])
def test_the_answer_stands_in_the_passage_and_goes_on_with_the_statement(name: str) -> None:
    with quiet(may_execute=False):
        (task,) = load_task(TaskSpec(name=name), FOLDER).values()
    space = "" if name.endswith("zh") else " "
    for document in task.eval_docs:
        assert document["answer"].lower() in document["text"].lower()
        # lm-eval joins the two as they are: without the space the model is asked for another word.
        joined = task.doc_to_text(document) + task.doc_to_target(document)
        assert joined.endswith(document["statement"] + space + document["answer"])


def test_a_function_gives_back_what_the_code_task_holds_right() -> None:
    with quiet(may_execute=False):
        (task,) = load_task(TaskSpec(name="code_reading"), FOLDER).values()
    for document in task.eval_docs:
        names: dict[str, object] = {}
        exec(document["code"], names)
        right = document["choices"][document["gold"]]
        assert eval(document["call"], names) == ast.literal_eval(right)
        values = [ast.literal_eval(choice) for choice in document["choices"]]
        assert values.count(ast.literal_eval(right)) == 1
