"""A run with everything that a recipe can ask beside loss on text, of an artifact made here and an import."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import quantflow
from quantflow.commands.judging import judging
from quantflow.errors import RecipeError
from quantflow.gate.verdict import Verdict
from quantflow.report.html import render_html
from tests.tasks.toys import task_folder
from tests.tiny_models import documents
from tests.tiny_run import write_recipe

ASKED = """\
  tasks_dir: own
  tasks: [{{name: toy_next, max_drop: 0.5}}]
  generation: {{prompts: 40, prompt_tokens: 12, output_tokens: 6, min_identical: 0.2}}
  custom: [{{name: length, function: "scorer.py:score", max_drop: 20}}]
  against: {against}
"""
SCORER = "def score(samples):\n    return [(len(s['baseline']), len(s['artifact'])) for s in samples]\n"


@pytest.fixture(scope="module")
def finished(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, quantflow.RunResult]:
    folder = tmp_path_factory.mktemp("asked")
    served = Path(shutil.copytree(tiny_llama, folder / "served"))
    recipe = write_recipe(folder, tiny_llama)
    _plant(task_folder(folder / "own", items=40) / "items.jsonl")
    (folder / "scorer.py").write_text(SCORER)
    text = recipe.read_text().replace("artifacts:\n", "artifacts:\n  - {name: theirs, import: served}\n")
    recipe.write_text(text + ASKED.format(against=served))
    return recipe, quantflow.run(quantflow.load_recipe(recipe), folder=folder)


def _plant(items: Path) -> None:
    """Let one item hold the text that is calibrated on."""
    rows = [json.loads(line) | {"seen": ""} for line in items.read_text().splitlines()]
    rows[7]["seen"] = "\n".join(documents(80, seed=1))
    items.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_an_item_that_calibration_text_has_is_counted_and_told(
    finished: tuple[Path, quantflow.RunResult],
) -> None:
    report = finished[1].report
    assert report.data is not None and report.data.leakage is not None
    leaked = report.data.leakage.tasks["toy_next"]
    assert (leaked.items, leaked.leaked, leaked.passages) == (40, 1, 1)
    assert leaked.shown[0].item == "toy_next/7"
    (event,) = (event for event in report.events if event.code == "task-items-in-calibration")
    assert event.detail["items"] == 1
    for language, said in (("en", "take those documents out of data.files"), ("zh", "从 data.files 中去掉")):
        assert said in render_html(report.model_copy(update={"language": language}))


def test_every_criterion_is_judged_for_both_artifacts(finished: tuple[Path, quantflow.RunResult]) -> None:
    report = finished[1].report
    assert not finished[1].errors
    for name in ("int4", "theirs"):
        names = [c.name for c in report.criteria if c.artifact == name]
        assert names == [
            "perplexity",
            "kl",
            "identity",
            "tasks",
            "generation",
            "custom",
            "against",
            "against",
        ]
    judged = {(c.artifact, c.name): c for c in report.criteria}
    assert judged["theirs", "generation"].value == 1.0
    assert judged["theirs", "identity"].verdict is Verdict.PASS
    assert judged["int4", "custom"].verdict is Verdict.PASS
    # Twenty passages are too few to judge by, however alike the scores are.
    assert judged["theirs", "tasks"].verdict is Verdict.INCONCLUSIVE


def test_the_report_has_what_was_asked_for(finished: tuple[Path, quantflow.RunResult]) -> None:
    theirs = next(a for a in finished[1].report.artifacts if a.name == "theirs")
    assert (theirs.format, theirs.scheme.dtype, theirs.path) == ("hf", "bfloat16", "served")
    assert theirs.measurements is not None
    assert theirs.measurements.tasks["toy_next"].n == 40
    assert theirs.measurements.generation is not None
    assert theirs.measurements.generation.prompts == 40
    recovery = theirs.measurements.recovery
    assert recovery is not None and (recovery.value, recovery.tasks, recovery.n) == (1.0, 1, 40)
    assert "a description, not judged" in render_html(finished[1].report)
    assert theirs.lossless is not None
    assert "Its tensors are the baseline's, bit by bit." in theirs.lossless.checks[0].reason
    assert "artifact-imported" in {event.code for event in finished[1].report.events}


def test_an_import_is_neither_copied_nor_changed(finished: tuple[Path, quantflow.RunResult]) -> None:
    artifacts = finished[0].parent / "artifacts" / "tiny"
    assert [path.name for path in artifacts.iterdir()] == ["int4"]


def test_an_artifact_is_judged_without_a_recipe_that_names_it(
    finished: tuple[Path, quantflow.RunResult], tiny_llama: Path
) -> None:
    folder = finished[0].parent
    overrides = judging(str(tiny_llama), folder / "served")
    result = quantflow.run(quantflow.load_recipe(finished[0], overrides), folder=folder)
    assert [artifact.name for artifact in result.report.artifacts] == ["candidate"]
    assert {c.name for c in result.report.criteria} >= {"perplexity", "kl", "identity", "against"}


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("gate.tasks_dir=nowhere", "there is no such folder"),
        ("gate.against=nowhere", "there is no artifact in"),
        ("artifacts=[{name: x, import: nowhere}]", "there is no artifact in"),
        ("gate.generation=null", "scorers get what both sides generate"),
        ("gate.custom=[{name: x, function: 'nowhere.py:f', max_drop: 1}]", "there is no such file"),
    ],
)
def test_what_is_not_there_is_refused_before_anything_runs(
    finished: tuple[Path, quantflow.RunResult], override: str, complaint: str
) -> None:
    with pytest.raises(RecipeError, match=complaint):
        quantflow.run(quantflow.load_recipe(finished[0], (override,)), folder=finished[0].parent)


def test_logits_that_are_no_numbers_and_another_vocabulary_are_errors_with_a_reason(
    finished: tuple[Path, quantflow.RunResult],
) -> None:
    folder = finished[0].parent
    spoiled = Path(shutil.copytree(folder / "served", folder / "spoiled"))
    weights = load_file(spoiled / "model.safetensors")
    weights["model.norm.weight"][3] = float("nan")
    save_file(weights, spoiled / "model.safetensors", metadata={"format": "pt"})
    larger = Path(shutil.copytree(folder / "served", folder / "larger"))
    config = json.loads((larger / "config.json").read_text())
    (larger / "config.json").write_text(json.dumps(config | {"vocab_size": 300}))
    recipe = quantflow.load_recipe(
        finished[0],
        (
            "artifacts=[{name: spoiled, import: spoiled}, {name: larger, import: larger}]",
            *(f"gate.{key}=null" for key in ("generation", "against")),
            *(f"gate.{key}=[]" for key in ("tasks", "custom")),
        ),
    )
    report = quantflow.run(recipe, folder=folder).report
    assert [artifact.verdict for artifact in report.artifacts] == [Verdict.ERROR, Verdict.ERROR]
    assert report.exit_code == 2
    assert "measure:spoiled" in report.reason and "not finite numbers" in report.reason
    assert "measure:larger" in report.reason and "a vocabulary of 300" in report.reason


def test_a_task_that_fails_half_way_makes_the_run_an_error_and_names_it(
    finished: tuple[Path, quantflow.RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def failing(self: object, document: object, results: object) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise ZeroDivisionError("no scores left")
        return {"acc": 1.0}

    monkeypatch.setattr("lm_eval.api.task.ConfigurableTask.process_results", failing)
    recipe = quantflow.load_recipe(
        finished[0],
        ("gate.tasks=[{name: toy_choice, max_drop: 0.9}]", "gate.against=null"),
    )
    report = quantflow.run(recipe, folder=finished[0].parent).report
    assert report.verdict is Verdict.ERROR and report.exit_code == 2
    assert "toy_choice: the task failed: ZeroDivisionError: no scores left" in report.reason
    assert not any(criterion.name == "tasks" for criterion in report.criteria)
