"""The page of several recipes: what became of each, in the language that all of them are reported in."""

from pathlib import Path

import pytest

from quantflow.gate.verdict import Verdict
from quantflow.report.batch import Batch, RecipeOutcome, write_batch
from quantflow.report.model import Report
from quantflow.report.wording import Language
from tests.report.samples import report
from tests.report.test_html import HOSTILE, KNOWN_TAGS, Page


def page(folder: Path, *languages: Language) -> str:
    reports: dict[str, Report] = {}
    outcomes = [
        RecipeOutcome(
            recipe=f"{HOSTILE}.yaml", verdict=Verdict.ERROR, exit_code=4, reason=HOSTILE, seconds=0.1
        )
    ]
    for number, language in enumerate(languages):
        made = report(Verdict.PASS, Verdict.FAIL).model_copy(
            update={"language": language, "run_id": f"run-{number}"}
        )
        reports[made.run_id] = made
        place = folder / "reports" / "quickstart" / made.run_id
        outcomes.append(
            RecipeOutcome(
                recipe=f"{number}.yaml",
                run_id=made.run_id,
                verdict=made.verdict,
                exit_code=1,
                reason=made.reason,
                seconds=61.0,
                report=str(place),
            )
        )
    batch = Batch(batch_id="b", started="2026-11-30T00:00:00Z", exit_code=4, outcomes=tuple(outcomes))
    return write_batch(batch, reports, folder).read_text(encoding="utf-8")


def test_every_recipe_has_a_row_and_every_report_a_link(tmp_path: Path) -> None:
    text = page(tmp_path, "en", "en")
    words = Page(text).words
    assert "3 recipes" in words and "Exit code 4, the worst of all" in words
    assert 'href="../../quickstart/run-1/report.html"' in text
    assert "Mean KL 0.2213" in words and "not made" not in words


@pytest.mark.parametrize(
    ("languages", "heading"),
    [(("zh", "zh"), "3 份配方"), (("zh", "en"), "3 recipes"), ((), "1 recipe, begun")],
)
def test_it_speaks_the_language_of_all_its_reports(
    tmp_path: Path, languages: tuple[Language, ...], heading: str
) -> None:
    text = page(tmp_path, *languages)
    assert heading in Page(text).words
    assert f'<html lang="{"zh" if heading.startswith("3 份") else "en"}' in text


def test_hostile_names_do_no_harm(tmp_path: Path) -> None:
    text = page(tmp_path, "en")
    assert HOSTILE not in text
    assert {tag for tag, _ in Page(text).tags} <= KNOWN_TAGS
