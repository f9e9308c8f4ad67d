"""Runs whose artifacts are measured look by look, until every criterion is decided."""

from pathlib import Path
from typing import Any

import pytest

import quantflow
from quantflow.errors import RecipeError
from quantflow.gate.adaptive import judge_looks
from quantflow.gate.result import CriterionResult
from quantflow.gate.verdict import Verdict
from quantflow.measure import adaptive
from quantflow.report.html import render_html
from quantflow.report.model import ArtifactReport, Report
from tests.tiny_run import write_recipe

TWO_LOOKS = "gate.perplexity.max_increase"


@pytest.fixture(scope="module")
def finished(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, quantflow.RunResult]:
    folder = tmp_path_factory.mktemp("adaptive")
    recipe = write_recipe(folder, tiny_llama, letters=150)
    recipe.write_text(recipe.read_text() + "  evaluation: adaptive\n  identity: null\n")
    return recipe, quantflow.run(quantflow.load_recipe(recipe), folder=folder)


def artifact(report: Report) -> ArtifactReport:
    return report.artifacts[0]


def perplexity(report: Report) -> CriterionResult:
    return next(criterion for criterion in report.criteria if criterion.name == "perplexity")


def test_what_is_clear_is_decided_early_and_what_was_saved_is_said(
    finished: tuple[Path, quantflow.RunResult],
) -> None:
    report = finished[1].report
    assert report.verdict is Verdict.PASS, report.reason
    saving = artifact(report).saving
    assert saving is not None and saving.looks == 1
    assert 30 <= saving.measured < saving.available
    assert f"after {saving.measured} of {saving.available} documents" in report.reason
    judged = perplexity(report)
    assert judged.n_clusters == saving.measured
    measured = artifact(report).measurements
    # Near duplicates are one document of the sample.
    assert measured is not None
    assert saving.measured <= measured.perplexity.documents < saving.available
    # The baseline beside it is that of the same documents, in the criterion and in the tables.
    assert measured.perplexity.baseline == pytest.approx(judged.baseline)
    assert measured.slices == {}
    for language, said in (("en", "of its measuring was saved"), ("zh", "节省了")):
        assert said in render_html(report.model_copy(update={"language": language}))


def test_logits_that_differ_in_a_part_are_not_lossless_to_the_last_bit(
    finished: tuple[Path, quantflow.RunResult],
) -> None:
    found = artifact(finished[1].report).lossless
    assert found is not None and found.checks[0].reached is False
    assert "Its logits are not the baseline's" in found.checks[0].reason


def test_it_goes_on_after_an_interruption_between_looks_and_gives_the_same_numbers(
    finished: tuple[Path, quantflow.RunResult], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A margin that lies where the effect is: the first looks do not decide it.
    effect = perplexity(finished[1].report).delta
    assert effect is not None
    recipe = quantflow.load_recipe(finished[0], (f"{TWO_LOOKS}={effect:.4f}",))
    seen: list[object] = []

    def interrupted(*args: Any) -> object:
        seen.append(args)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return judge_looks(*args)

    monkeypatch.setattr(adaptive, "judge_looks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        quantflow.run(recipe, folder=finished[0].parent)
    resumed = quantflow.run(recipe, folder=finished[0].parent).report
    monkeypatch.undo()
    fresh = quantflow.run(recipe, folder=tmp_path).report
    saving = artifact(fresh).saving
    assert saving is not None and saving.looks > 1
    assert resumed.criteria == fresh.criteria
    assert artifact(resumed).saving == saving


@pytest.mark.parametrize(
    "override",
    [
        "gate.kl.max_p99=1.0",
        "gate.kl.min_top1_agreement=0.5",
        "gate.kl.slices=[{slice: '*', max_mean: 0.5}]",
        "gate.require=L1",
        "gate.against=served",
    ],
)
def test_what_looking_early_was_not_shown_to_hold_for_is_refused(
    finished: tuple[Path, quantflow.RunResult], override: str
) -> None:
    with pytest.raises(RecipeError, match="may stop early for perplexity and mean KL in torch only"):
        quantflow.run(quantflow.load_recipe(finished[0], (override,)), folder=finished[0].parent)
