"""Whole runs with graphs that are asked everything: made here, made by somebody else, in service."""

import shutil
from pathlib import Path

import pytest

import quantflow
from quantflow.commands.judging import judging
from quantflow.gate.verdict import Verdict
from tests.tasks.toys import task_folder
from tests.test_asked_run import SCORER
from tests.tiny_run import write_recipe

INT4 = "  - {name: int4, format: awq, bits: 4, group_size: 32}"
MADE = "  - {name: w4, format: onnx, scheme: w4-block}"
ASKED = """\
  tasks_dir: own
  tasks: [{name: toy_next, max_drop: 0.5}]
  generation: {prompts: 40, prompt_tokens: 12, output_tokens: 6, min_identical: 0.2}
  custom: [{name: length, function: "scorer.py:score", max_drop: 20}]
  against: served
"""
ONNX = ("runtime.onnx.threads=1", "runtime.device=cpu")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, quantflow.RunResult]:
    folder = tmp_path_factory.mktemp("onnx-asked")
    recipe = write_recipe(folder, tiny_llama)
    recipe.write_text(recipe.read_text().replace(INT4, MADE))
    first = quantflow.run(quantflow.load_recipe(recipe, ONNX), folder=folder)
    assert not first.errors
    for name in ("served", "theirs"):
        shutil.copytree(folder / "artifacts" / "tiny" / "w4", folder / name)
    task_folder(folder / "own", items=40)
    (folder / "scorer.py").write_text(SCORER)
    both = "  - {name: fp32, format: onnx, scheme: fp32}\n  - {name: theirs, import: theirs}"
    recipe.write_text(recipe.read_text().replace(MADE, both) + ASKED)
    return recipe, quantflow.run(quantflow.load_recipe(recipe, ONNX), folder=folder)


def test_every_criterion_is_judged_for_both_graphs(finished: tuple[Path, quantflow.RunResult]) -> None:
    report = finished[1].report
    assert not finished[1].errors
    judged = {(c.artifact, c.name): c for c in report.criteria}
    for name in ("fp32", "theirs"):
        asked = (
            "perplexity",
            "kl",
            "graph",
            "census",
            "identity",
            "tasks",
            "generation",
            "custom",
            "against",
        )
        assert all((name, criterion) in judged for criterion in asked)
        assert judged[name, "identity"].verdict is Verdict.PASS
        assert judged[name, "census"].verdict is Verdict.PASS
        assert judged[name, "graph"].verdict is Verdict.PASS
    assert judged["fp32", "generation"].value == 1.0
    assert judged["theirs", "against"].delta == 0
    # Twenty passages are too few to judge by, however alike the scores are.
    assert judged["fp32", "tasks"].verdict is Verdict.INCONCLUSIVE
    assert judged["fp32", "tasks"].noise_floor is not None


def test_the_report_has_both_sides_answers_and_the_graphs_own_bits(
    finished: tuple[Path, quantflow.RunResult],
) -> None:
    artifacts = {artifact.name: artifact for artifact in finished[1].report.artifacts}
    for artifact in artifacts.values():
        assert artifact.measurements is not None
        assert artifact.measurements.tasks["toy_next"].n == 40
        assert artifact.measurements.generation is not None
    assert (artifacts["theirs"].scheme.bits, artifacts["theirs"].scheme.group_size) == (4, 32)
    lossless = artifacts["fp32"].lossless
    assert lossless is not None
    assert lossless.checks[0].reason.startswith(
        "Its logits are the baseline's within the runtime's own noise"
    )


def test_a_graph_is_judged_without_a_recipe_that_names_it(
    finished: tuple[Path, quantflow.RunResult], tiny_llama: Path
) -> None:
    folder = finished[0].parent
    overrides = (*judging(str(tiny_llama), folder / "theirs"), *ONNX)
    result = quantflow.run(quantflow.load_recipe(finished[0], overrides), folder=folder)
    assert not result.errors
    assert [artifact.name for artifact in result.report.artifacts] == ["candidate"]
    assert result.report.artifacts[0].format == "onnx"
    assert {c.name for c in result.report.criteria} >= {"perplexity", "kl", "tasks", "census", "against"}
