"""A run's report is rendered again without computing."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quantflow.cli import app
from quantflow.errors import RecipeError
from quantflow.gate.verdict import Verdict
from quantflow.report.html import render_html
from quantflow.report.read import load_report
from quantflow.report.write import write_report
from tests.report.samples import report

RUN = "20261130T051237Z-4f9a01"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_report(report(Verdict.FAIL, Verdict.PASS), tmp_path / "reports" / "quickstart" / RUN)
    write_report(
        report(Verdict.PASS, Verdict.PASS), tmp_path / "reports" / "other" / "20261130T060000Z-aaaaaa"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_renders_the_same_page_again(place: Path) -> None:
    page = place / "reports" / "quickstart" / RUN / "report.html"
    before = page.read_bytes()
    page.write_text("an older page")
    result = CliRunner().invoke(app, ["report", RUN])
    assert result.exit_code == 0 and result.output == f"Report: {page}\n"
    assert page.read_bytes() == before


def test_the_command_renders_another_language_elsewhere_and_leaves_the_run_s_own(place: Path) -> None:
    own = place / "reports" / "quickstart" / RUN
    before = {path.name: path.read_bytes() for path in own.iterdir()}
    assert CliRunner().invoke(app, ["report", RUN, "--language", "zh", "--output", "zh"]).exit_code == 0
    assert {path.name: path.read_bytes() for path in own.iterdir()} == before
    chinese = load_report(place / "zh")
    assert (place / "zh" / "report.html").read_text() == render_html(chinese)
    ours, theirs = (json.loads((folder / "report.json").read_text()) for folder in (place / "zh", own))
    assert {key for key in ours if ours[key] != theirs[key]} == {"language"}


def test_the_command_leaves_texts_out_elsewhere_and_never_in_the_run_s_own(place: Path) -> None:
    own = place / "reports" / "quickstart" / RUN
    before = {path.name: path.read_bytes() for path in own.iterdir()}
    refused = CliRunner().invoke(app, ["report", RUN, "--text", "none"])
    assert isinstance(refused.exception, RecipeError)
    assert {path.name: path.read_bytes() for path in own.iterdir()} == before
    assert CliRunner().invoke(app, ["report", RUN, "--text", "none", "--output", "poorer"]).exit_code == 0
    assert load_report(place / "poorer").text == "none"
