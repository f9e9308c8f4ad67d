"""What changed: both models' texts side by side, as far as a report may hold them."""

import json
import time

import pytest

from quantflow.gate.verdict import Verdict
from quantflow.report.differences import COMPARED_LENGTH, marked
from quantflow.report.html import render_html
from quantflow.report.model import Report
from quantflow.report.redaction import redact
from quantflow.report.text import TextLevel
from quantflow.report.write import report_json
from tests.report.changes import SECRET, generation, measured, pair
from tests.report.samples import artifact, criterion, measurement, report
from tests.report.test_html import Page


def changed_report(**changes: object) -> Report:
    own = artifact(Verdict.FAIL, measurements=measured())
    return report(Verdict.FAIL, Verdict.FAIL, artifacts=(own,)).model_copy(update=changes)


def test_differences_are_marked_by_word() -> None:
    left, right = marked("We sent it on Monday.", "We sent them on Tuesday.")
    assert left == "We sent<mark> it</mark> on<mark> Monday</mark>."
    assert right == "We sent<mark> them</mark> on<mark> Tuesday</mark>."


def test_chinese_is_marked_by_sign() -> None:
    assert marked("发票已更正", "发票未更正") == ("发票<mark>已</mark>更正", "发票<mark>未</mark>更正")


def test_what_one_says_and_the_other_does_not_is_marked_once() -> None:
    assert marked("Yes.", "Yes. And no.") == ("Yes.", "Yes.<mark> And no.</mark>")
    assert marked("", "x") == ("", "<mark>x</mark>")
    assert marked("same", "same") == ("same", "same")


def test_marked_texts_are_escaped_and_cut() -> None:
    left, right = marked("<b>\u202e", "<script>" + "x " * COMPARED_LENGTH)
    assert "<b>" not in left and "[U+202E]" in left.replace("<mark>", "").replace("</mark>", "")
    assert "<script>" not in right and right.endswith("…") and len(right) < 3 * COMPARED_LENGTH


def test_long_texts_are_compared_quickly() -> None:
    started = time.process_time()
    for number in range(20):
        marked(f"{number} a b c " * 25_000, f"{number} a c d " * 25_000)
    assert time.process_time() - started < 2


def test_the_page_shows_outputs_side_by_side_and_flips() -> None:
    page = Page(render_html(changed_report()))
    for text in (
        "41.0 % of 200 prompts are answered with the very same tokens (90 % interval 35.0 % to 47.0 %).",
        "Of the baseline against itself in other batches it is 97.0 %.",
        "Document 3, billing, from token 7 on, where the baseline's first choice was 0.42 ahead",
        "We have corrected the amount and will send it again soon.",
        "reading (exact_match): 62.0 % with the baseline, 58.5 % with the artifact, on 200 items; 12 lost, 5",
        "reading/17",
    ):
        assert text in page.words
    assert sum(tag == "mark" for tag, _ in page.tags) > 4


def test_a_task_s_criterion_says_how_many_items_flipped() -> None:
    judged = criterion("tasks", Verdict.FAIL, metric="exact_match", slice="reading")
    words = Page(render_html(changed_report(criteria=(judged,)))).words
    assert "60 groups of items" in words and "12 lost, 5 gained" in words


def test_a_run_without_outputs_or_tasks_has_no_such_section() -> None:
    assert 'id="changes"' not in render_html(report(Verdict.PASS, Verdict.PASS))


@pytest.mark.parametrize("level", ["redacted", "none"])
def test_nothing_of_what_was_said_is_left_in_either_file(level: TextLevel) -> None:
    poorer = redact(changed_report(), level)
    for content in (report_json(poorer), render_html(poorer)):
        for word in ("Jane", "Miller", "Elm", "77319", "invoice", "Thank", "March", "refund"):
            assert word not in content
    assert "reading/17" in report_json(poorer)


def test_a_redacted_text_still_shows_where_it_parts_and_repeats() -> None:
    poorer = redact(changed_report(), "redacted")
    parts = poorer.artifacts[0].measurements
    assert parts and parts.generation
    first, second = parts.generation.shown
    assert first.baseline.partition(".")[0] == first.artifact.partition(".")[0]
    assert first.baseline != first.artifact
    *_, one, two, three = second.artifact.rstrip(".").split()
    assert one == two == three
    assert "<mark>" in render_html(poorer) and "report.text: redacted" in render_html(poorer)


def test_without_texts_the_figures_stay() -> None:
    page = render_html(redact(changed_report(), "none")).replace("\u00a0", " ")
    assert "41.0 % of 200 prompts" in page and "12 lost, 5 gained" in page
    assert "report.text: none" in page and '<p class="said"' not in page


def test_redacting_is_not_undone_and_says_what_is_left() -> None:
    poorer = redact(changed_report(), "none")
    assert poorer.text == "none"
    assert redact(poorer, "full") is poorer and redact(poorer, "redacted") is poorer
    assert redact(changed_report(), "full") == changed_report()


def test_every_text_of_a_measurement_is_redacted() -> None:
    # A new field of text in what models were given or said has to be named in redaction.py.
    whole = json.loads(measured().model_dump_json())
    poorer = redact(changed_report(), "none").artifacts[0].measurements
    assert poorer is not None
    left = json.loads(poorer.model_dump_json())
    kept = {"slice", "id", "metric", "name", "version", "device", "dtype"}

    def texts(node: object, name: str = "") -> list[str]:
        if isinstance(node, dict):
            return [text for key, part in node.items() if key != "options" for text in texts(part, key)]
        if isinstance(node, list):
            return [text for part in node for text in texts(part, name)]
        return [node] if isinstance(node, str) and name not in kept and node else []

    assert len(texts(whole)) == 12
    assert texts(left) == []


@pytest.mark.parametrize("said", ["<script>alert(1)</script>", "\0\u202e" * 20, "W" * 100_000, "🦜" * 3000])
def test_hostile_outputs_do_no_harm(said: str) -> None:
    value = generation(*(pair(number, said, said[::-1]) for number in range(20)))
    own = measurement(1.0, kl=True).model_copy(update={"generation": value})
    page = render_html(
        report(Verdict.FAIL, Verdict.FAIL, artifacts=(artifact(Verdict.FAIL, measurements=own),))
    )
    assert page.count("<script>") == 1
    assert "\0" not in page and "\u202e" not in page
    assert len(page) < 300_000
    assert SECRET[:4] in page
