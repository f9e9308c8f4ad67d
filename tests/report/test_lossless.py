"""The level of lossless: the highest reached, and never L3 without saying that it is lossy."""

import pytest

from quantflow.gate.level import Level
from quantflow.gate.result import LevelCheck, Lossless
from quantflow.gate.verdict import Verdict
from quantflow.report.html import render_html
from quantflow.report.verdict import why
from quantflow.report.wording import load_wording
from tests.report.samples import artifact, criterion, report
from tests.report.test_html import Page

EN, ZH = load_wording("en"), load_wording("zh")


def lossless(level: Level | None) -> Lossless:
    checks = (
        LevelCheck(level="L1", reached=False, reason="Its logits are not the baseline's."),
        LevelCheck(level="L2", reached=None, reason="No outputs were compared."),
        LevelCheck(level="L3", reached=level == "L3", reason="A reason <b>of the gate's</b>."),
    )
    return Lossless(level=level, checks=checks, sentence="It reaches L3. That is not lossless.")


def page(level: Level | None, language: str = "en") -> str:
    own = artifact(Verdict.PASS, lossless=lossless(level))
    shown = report(Verdict.PASS, Verdict.PASS, artifacts=(own,)).model_copy(update={"language": language})
    return render_html(shown)


def test_the_level_is_named_with_its_meaning_and_every_check() -> None:
    words = Page(page("L3")).words
    assert "int4-awq: L3, lossy within the agreed margin It reaches L3. That is not lossless." in words
    assert "L1, mathematically lossless no Its logits are not the baseline's." in words
    assert "L2, output-identical not shown No outputs were compared." in words
    assert "<b>of" not in page("L3")


def test_an_artifact_that_reaches_none_says_so_in_either_language() -> None:
    assert "int4-awq: no level" in Page(page(None)).words
    assert "未达到任何等级" in page(None, "zh")


def test_a_run_whose_samples_could_not_be_paired_has_no_such_section() -> None:
    assert 'id="lossless"' not in render_html(report(Verdict.ERROR, Verdict.ERROR))


@pytest.mark.parametrize(
    ("value", "verdict", "said"),
    [
        (1.0, Verdict.PASS, "Level of lossless (int4-awq): L1, as required."),
        (3.0, Verdict.FAIL, "Level of lossless (int4-awq): L3, which is not what is required."),
        (4.0, Verdict.INCONCLUSIVE, "Level of lossless (int4-awq): – is shown, and what is required"),
    ],
)
def test_a_required_level_is_judged_in_words(value: float, verdict: Verdict, said: str) -> None:
    judged = criterion("require", verdict, metric="lossless_level", value=value, delta=value - 2, margin=0.0)
    assert why(judged, EN).startswith(said)
    assert why(judged, ZH) != why(judged, EN)
    assert 'class="span"' not in render_html(report(verdict, verdict, criteria=(judged,)))
