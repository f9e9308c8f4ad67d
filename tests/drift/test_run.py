"""Runs that hold calibration text against a sample of production text."""

import json
import random
from pathlib import Path

import pytest

import quantflow
from quantflow.errors import DataError, RecipeError
from quantflow.gate.verdict import Verdict
from quantflow.plan import make
from quantflow.plan.make import make_plan
from quantflow.report.drift_lines import drift_lines
from quantflow.report.html import render_html
from quantflow.report.terminal_data import drift_view
from quantflow.report.wording import load_wording
from tests.plan.test_plan import SPEED
from tests.tiny_models import documents
from tests.tiny_run import write_recipe

ALIKE = "data.reference=[alike.jsonl]"
CHINESE = "恒温器无法配对，请按住按钮六秒钟，直到灯变成蓝色。订单的退款需要五个工作日。"


def write(path: Path, texts: list[str], part: str) -> None:
    lines = (json.dumps({"text": text, "slice": part}) for text in texts)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def shifted(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, quantflow.RunResult]:
    """Production of letters as in calibration and, one in three, something new in Chinese."""
    folder = tmp_path_factory.mktemp("drift")
    recipe = write_recipe(folder, tiny_llama, letters=150)
    write(folder / "alike.jsonl", documents(60, seed=9), "letters")
    choose = random.Random(1)
    new = ["".join(choose.choices(CHINESE, k=choose.randint(20, 60))) for _ in range(29)]
    write(folder / "new.jsonl", new, "winter")
    text = recipe.read_text().replace(
        "  files: [letters.jsonl]\n",
        "  files: [letters.jsonl]\n  reference: [alike.jsonl, new.jsonl]\n",
    )
    text = text.replace("windows: 8,", "windows: 80,")  # of more documents than a verdict takes
    recipe.write_text(text + "  drift: {max_js: 0.05}\n")
    return recipe, quantflow.run(quantflow.load_recipe(recipe), folder=folder)


def test_production_that_differs_fails_with_the_reason_and_what_to_do(
    shifted: tuple[Path, quantflow.RunResult],
) -> None:
    report = shifted[1].report
    assert not shifted[1].errors
    criterion = next(c for c in report.criteria if c.name == "drift")
    assert criterion.verdict is Verdict.FAIL and report.verdict is Verdict.FAIL
    assert criterion.value is not None and criterion.noise_floor is not None
    assert criterion.delta == pytest.approx(criterion.value - criterion.noise_floor)
    assert report.data is not None and report.data.drift is not None
    drift = report.data.drift
    assert drift.unseen_slices == pytest.approx(0.25, abs=0.1)
    assert drift.reference.scripts["cjk"] == pytest.approx(drift.unseen_slices)
    assert drift.reference.perplexity > drift.calibration.perplexity
    assert drift.activations.total.outside > drift.activations.total.floor
    assert drift.activations.ranges == "sample"
    assert "slices that calibration has none of: winter" in " ".join(drift.sentences)
    assert drift.sentences[-1].startswith("Add production text to data.files")
    assert "production-differs" in {event.code for event in report.events}


def test_the_page_and_the_terminal_say_so_in_both_languages(
    shifted: tuple[Path, quantflow.RunResult],
) -> None:
    report = shifted[1].report
    page, chinese = (render_html(report.model_copy(update={"language": name})) for name in ("en", "zh"))
    assert 'id="drift"' in page and "Add production text to data.files" in page
    assert "生产文本与校准文本不同" in chinese
    assert report.data is not None
    said = drift_view(report.data)
    assert said is not None and "Production text differs" in str(said)


def test_production_like_calibration_passes_and_nothing_is_said(
    shifted: tuple[Path, quantflow.RunResult],
) -> None:
    recipe = quantflow.load_recipe(shifted[0], (ALIKE,))
    report = quantflow.run(recipe, folder=shifted[0].parent).report
    criterion = next(c for c in report.criteria if c.name == "drift")
    assert criterion.verdict is Verdict.PASS, criterion.reason
    assert report.data is not None and report.data.drift is not None
    assert report.data.drift.sentences[-1] == "Nothing has to be done."
    assert drift_view(report.data) is None
    assert "production-differs" not in {event.code for event in report.events}
    words = load_wording("en")
    drift = report.data.drift
    few = drift.model_copy(update={"tokens": drift.tokens.model_copy(update={"n_clusters": 29})})
    assert "29 documents" in drift_lines(few, words)[0]
    clipped = drift.activations.total.model_copy(update={"outside": 0.3, "floor": 0.01})
    inputs = drift.activations.model_copy(update={"total": clipped})
    beyond = drift.model_copy(update={"activations": inputs})
    for record in (few, beyond):
        assert "Nothing has to be done." not in drift_lines(record, words)


def test_too_little_production_text_is_inconclusive(shifted: tuple[Path, quantflow.RunResult]) -> None:
    recipe = quantflow.load_recipe(shifted[0], ("data.reference=[new.jsonl]",))
    report = quantflow.run(recipe, folder=shifted[0].parent).report
    criterion = next(c for c in report.criteria if c.name == "drift")
    assert criterion.verdict is Verdict.INCONCLUSIVE
    assert "documents are too few" in criterion.reason


def test_the_stage_is_planned(
    shifted: tuple[Path, quantflow.RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make, "find_speed", lambda workspace, device, on_measure: SPEED)
    recipe = quantflow.load_recipe(shifted[0], ("runtime.batch_tokens=512",))
    planned = {stage.name: stage for stage in make_plan(recipe, folder=shifted[0].parent).stages}
    assert planned["drift"].seconds and planned["drift"].memory and not planned["drift"].unknown


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("data.reference=[letters.jsonl]", "is a file of data.files, too"),
        ("data.reference=[]", "there is no production text to hold calibration text against"),
        ("data.reference=[nothing.jsonl]", "no file matches"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_runs(
    shifted: tuple[Path, quantflow.RunResult], override: str, complaint: str
) -> None:
    with pytest.raises(RecipeError, match=complaint):
        quantflow.run(quantflow.load_recipe(shifted[0], (override,)), folder=shifted[0].parent)


def test_files_without_a_document_are_an_error(shifted: tuple[Path, quantflow.RunResult]) -> None:
    (shifted[0].parent / "empty.jsonl").write_text("\n")
    recipe = quantflow.load_recipe(shifted[0], ("data.reference=[empty.jsonl]",))
    result = quantflow.run(recipe, folder=shifted[0].parent)
    assert result.report.verdict is Verdict.ERROR
    (error,) = (error for error in result.errors if isinstance(error, DataError))
    assert "the files hold no document" in str(error)


def test_calibration_text_in_a_file_of_another_name_is_not_compared_with_itself(
    shifted: tuple[Path, quantflow.RunResult],
) -> None:
    folder = shifted[0].parent
    lines = (folder / "letters.jsonl").read_text(encoding="utf-8").splitlines()
    (folder / "again.jsonl").write_text("\n".join(reversed(lines)) + "\n", encoding="utf-8")
    recipe = quantflow.load_recipe(shifted[0], ("data.reference=[again.jsonl]",))
    report = quantflow.run(recipe, folder=folder).report
    (left_out,) = (event for event in report.events if event.code == "reference-documents-calibrated")
    assert report.data is not None and report.data.drift is not None
    drift = report.data.drift
    drawn, copies = left_out.detail["of"], left_out.detail["documents"]
    assert isinstance(drawn, int) and isinstance(copies, int) and copies > 0
    assert drift.reference.documents == drawn - copies


def test_an_interrupted_comparison_goes_on_and_gives_the_same(
    shifted: tuple[Path, quantflow.RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    from quantflow.drift import stage

    folder = shifted[0].parent
    recipe = quantflow.load_recipe(shifted[0], ("data.reference=[new.jsonl]", "data.seed=1"))
    monkeypatch.setattr(stage, "token_difference", lambda counted: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        quantflow.run(recipe, folder=folder)
    monkeypatch.undo()
    resumed = quantflow.run(recipe, folder=folder).report
    assert resumed.data is not None and resumed.data.drift is not None
    fresh = quantflow.run(recipe, folder=folder / "elsewhere").report
    assert fresh.data is not None and fresh.data.drift is not None
    assert resumed.data.drift == fresh.data.drift
