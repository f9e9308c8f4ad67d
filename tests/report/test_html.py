"""The page: what it says, that it loads and runs nothing, that no text gets out of its place."""

import base64
import hashlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import pytest

from quantflow.gate.verdict import Verdict
from quantflow.pipeline.events import Event
from quantflow.report.html import render_html
from quantflow.report.model import DataReport, Report, Scheme
from tests.report.samples import accounting, artifact, baseline, criterion, measurement, report

HOSTILE = (
    "</title></style></p></svg><script>alert(1)</script><img src=x onerror=alert(1)>\"'`{{7*7}}{%x%}&lt;"
)
# Elements and attributes the template itself writes; a hostile text that became markup would add to them.
KNOWN_TAGS = {"html", "head", "meta", "title", "style", "body", "header", "main", "footer", "nav", "section"}
KNOWN_TAGS |= {"div", "span", "p", "h1", "h2", "h3", "ul", "li", "dl", "dt", "dd", "a", "code", "bdi"}
KNOWN_TAGS |= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
KNOWN_TAGS |= {"svg", "rect", "line", "circle", "path", "text", "polyline"}
KNOWN_TAGS |= {"script", "figure", "figcaption", "strong", "details", "summary", "ol"}


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.inside_style = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside_style = tag in ("style", "script")
        self.text += " " if tag == "dd" else ""

    def handle_endtag(self, tag: str) -> None:
        self.inside_style = False

    def handle_data(self, data: str) -> None:
        if not self.inside_style:
            self.text += data

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


def hostile_report() -> Report:
    sound = report(Verdict.FAIL, Verdict.ERROR)
    texts: dict[str, Any] = {"title": HOSTILE, "recipe": HOSTILE, "run_id": HOSTILE, "reason": HOSTILE}
    measured = measurement(1.0, kl=True)
    measured = measured.model_copy(
        update={
            "slices": {HOSTILE: measured.slices["billing"]},
            "runtime": measured.runtime.model_copy(
                update={"name": HOSTILE, "version": HOSTILE, "device": HOSTILE, "options": {HOSTILE: HOSTILE}}
            ),
        }
    )
    counted = accounting()
    return sound.model_copy(
        update=texts
        | {
            "criteria": tuple(
                c.model_copy(update=dict.fromkeys(("artifact", "name", "slice", "metric", "reason"), HOSTILE))
                for c in sound.criteria
            ),
            "artifacts": (
                artifact(
                    Verdict.ERROR,
                    name=HOSTILE,
                    path=HOSTILE,
                    format=HOSTILE,
                    scheme=Scheme(method=HOSTILE, bits=4, group_size=64),
                    measurements=measured,
                ),
            ),
            "baseline": baseline(
                source=HOSTILE,
                kind=HOSTILE,
                identity=HOSTILE,
                model_type=HOSTILE,
                dtype=HOSTILE,
                measurements=measured,
            ),
            "data": DataReport(accounting=counted, slices={HOSTILE: {"evaluation": 1}}),
            "events": (Event(code=HOSTILE, stage=HOSTILE, message=HOSTILE, detail={HOSTILE: [HOSTILE, 1]}),),
            "provenance": {HOSTILE: {HOSTILE: HOSTILE}, HOSTILE + "s": [{HOSTILE: HOSTILE}]},
        }
    )


EVERY_VERDICT = [
    report(Verdict.PASS, Verdict.PASS),
    report(Verdict.PASS, Verdict.FAIL),
    report(Verdict.INCONCLUSIVE, Verdict.PASS),
    report(Verdict.ERROR, Verdict.ERROR),
    hostile_report(),
]


@pytest.mark.parametrize("shown", EVERY_VERDICT, ids=["pass", "fail", "inconclusive", "error", "hostile"])
def test_the_page_refers_to_nothing_outside_itself(shown: Report) -> None:
    html = render_html(shown)
    page = Page(html)
    assert {tag for tag, _ in page.tags} <= KNOWN_TAGS
    for tag, attributes in page.tags:
        assert not {"src", "srcset", "data", "action", "xlink:href", "style"} & attributes.keys()
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("href") or "#").startswith("#"), tag
    style = html[html.index("<style>") : html.index("</style>")]
    assert not re.search(r"url\(|@import|@font-face|expression", style)


@pytest.mark.parametrize("shown", EVERY_VERDICT, ids=["pass", "fail", "inconclusive", "error", "hostile"])
def test_the_policy_allows_the_page_s_own_style_and_script_and_nothing_else(shown: Report) -> None:
    html = render_html(shown)
    page = Page(html)
    policies = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    hashes = {}
    for tag in ("style", "script"):
        [source] = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        hashes[tag] = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    assert policies == [
        f"default-src 'none'; style-src 'sha256-{hashes['style']}'; script-src 'sha256-{hashes['script']}'; "
        "base-uri 'none'; form-action 'none'"
    ]


def test_every_text_is_shown_as_it_is_and_never_becomes_markup() -> None:
    shown = hostile_report()
    page = Page(render_html(shown))
    # The title twice; recipe, run and reason; of two criteria name, artifact, slice and reason; and so on.
    assert page.text.count(HOSTILE) > 30
    plain = Page(render_html(report(Verdict.FAIL, Verdict.ERROR)))
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in plain.tags}


def test_equal_reports_give_equal_pages() -> None:
    code = (
        "from tests.report.samples import report; from quantflow.gate.verdict import Verdict;"
        "from quantflow.report.html import render_html; import sys;"
        "sys.stdout.buffer.write(render_html(report(Verdict.PASS, Verdict.FAIL)).encode())"
    )
    elsewhere = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert elsewhere.stdout.decode() == render_html(report(Verdict.PASS, Verdict.FAIL))


def test_every_link_of_the_navigation_leads_somewhere_and_ids_are_unique() -> None:
    page = Page(render_html(report(Verdict.PASS, Verdict.PASS)))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    targets = [(attributes["href"] or "").removeprefix("#") for tag, attributes in page.tags if tag == "a"]
    assert len(ids) == len(set(ids))
    assert len(targets) == 9 and set(targets) <= set(ids)
    assert sum(tag == "h1" for tag, _ in page.tags) == 1


def test_every_drawing_is_described_in_words_or_hidden_from_screen_readers() -> None:
    page = Page(render_html(report(Verdict.PASS, Verdict.FAIL)))
    drawings = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert all(a.get("aria-hidden") == "true" or a.get("aria-label") for a in drawings)
    labels = [a["aria-label"] for a in drawings if a.get("class") == "fail"]
    assert labels == ["change 0.2213, 90\u00a0% interval 0.2001 to 0.2430, margin 0.15"]


def test_the_criteria_show_value_change_interval_margin_and_sample_size() -> None:
    words = Page(render_html(report(Verdict.INCONCLUSIVE, Verdict.PASS))).words
    for figure in (
        "11.482",
        "13.104",
        "+14.13 %",
        "+12.01 % to +16.30 %",
        "margin +15 %",
        "19,888",
        "60 documents",
    ):
        assert figure in words
    for figure in ("0.0813", "0.0701 to 0.0926", "margin 0.15"):
        assert figure in words


def test_the_measurement_shows_the_tail_of_the_divergence_and_how_it_was_run() -> None:
    words = Page(render_html(report(Verdict.PASS, Verdict.PASS))).words
    for text in (
        "0.0612",
        "KL, 99.9th percentile",
        "1.8730",
        "88.1 %",
        "torch 2.13.0 on cpu in float32",
        "threads = 2",
    ):
        assert text in words


def test_sizes_are_compared_with_the_baseline() -> None:
    words = Page(render_html(report(Verdict.PASS, Verdict.PASS))).words
    assert "269 MB" in words and "115 MB" in words and "42.7 %" in words


def test_events_are_listed_with_their_detail() -> None:
    words = Page(render_html(report(Verdict.PASS, Verdict.PASS))).words
    assert "gguf-dequantized in source The GGUF file holds quantized weights" in words
    assert "types.Q4_1 211" in words and "<|im_end|>" in words


def test_a_run_that_ended_early_has_a_page_that_says_what_is_missing() -> None:
    ended = report(
        Verdict.ERROR,
        Verdict.ERROR,
        criteria=(),
        baseline=None,
        data=None,
        artifacts=(artifact(Verdict.ERROR, bytes=None, measurements=None),),
        events=(),
        provenance={},
    )
    words = Page(render_html(ended)).words
    for text in (
        "No criterion was judged.",
        "not made",
        "Nothing was measured.",
        "The run ended before the data was read.",
    ):
        assert text in words


def test_a_slice_that_only_the_baseline_has_leaves_a_dash() -> None:
    partial = measurement(1.0, kl=True)
    partial = partial.model_copy(update={"slices": {}})
    shown = report(Verdict.PASS, Verdict.PASS, artifacts=(artifact(Verdict.PASS, measurements=partial),))
    assert "articles 20 6,120 10.000 – – –" in Page(render_html(shown)).words


def test_a_criterion_that_is_not_required_says_so() -> None:
    shown = report(Verdict.PASS, Verdict.PASS, criteria=(criterion("kl", Verdict.FAIL, required=False),))
    assert "int4-awq advisory" in Page(render_html(shown)).words
