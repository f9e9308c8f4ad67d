"""Texts of models, data and files do a page no harm: nothing unseen, nothing endless, no markup."""

import re

import pytest

from quantflow.gate.verdict import Verdict
from quantflow.measure.measurement import Measurement
from quantflow.pipeline.events import Event
from quantflow.report.html import render_html
from quantflow.report.text import SHOWN_LENGTH, shown, visible, whole
from quantflow.report.wording import load_wording
from tests.report.samples import artifact, criterion, measurement, report

EN = load_wording("en")
LONG = "W" * 100_000


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\0b", "a[U+0000]b"),
        ("\u202egnp.exe", "[U+202E]gnp.exe"),
        ("\u2066\u2069\u2028", "[U+2066][U+2069][U+2028]"),
        ("\x1b[31m\x85", "[U+001B][31m[U+0085]"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("\u05e9\u05dc\u05d5\u05dd\u200f!", "\u05e9\u05dc\u05d5\u05dd\u200f!"),  # marks are part of text
        ("👩‍👩‍👧 é ﷽", "👩‍👩‍👧 é ﷽"),
    ],
)
def test_characters_that_are_not_seen_are_named(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    assert shown("x" * SHOWN_LENGTH, EN) == "x" * SHOWN_LENGTH
    assert shown(LONG, EN).endswith("W … (cut here, 98,000 more characters are in report.json)")


def test_a_text_in_full_is_escaped() -> None:
    assert whole(f"<b>{LONG}\0") == f"&lt;b&gt;{LONG}[U+0000]"


@pytest.mark.parametrize("name", [LONG, "\u202e\0<script>alert(1)</script>", "🦜" * 50, "\u200f"])
def test_names_of_slices_files_and_events_do_a_page_no_harm(name: str) -> None:
    measured: Measurement = measurement(1.0, kl=True)
    measured = measured.model_copy(
        update={"slices": {name: measured.slices["billing"], "b": measured.slices["billing"]}}
    )
    event = Event(code="odd-file", stage=name, message=name, detail={name: name})
    page = render_html(
        report(
            Verdict.FAIL,
            Verdict.FAIL,
            title=name,
            criteria=(criterion("kl", Verdict.FAIL, slice=name, artifact=name),),
            artifacts=(artifact(Verdict.FAIL, name=name, measurements=measured),),
            events=(event,),
        )
    )
    assert page.count("<script>") == 1
    assert not re.search("[\0\u202e]", page)
    assert len(page) < 300_000
