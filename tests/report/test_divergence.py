"""Divergence in detail: by confidence, where it is largest, and llama.cpp's figures."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from quantflow.gate.divergence import Divergence
from quantflow.gate.verdict import Verdict
from quantflow.measure.divergence_detail import WorstPosition, by_confidence
from quantflow.measure.llama_cpp import llama_cpp_block
from quantflow.measure.measurement import Samples
from quantflow.report.charts.confidence import confidence_chart
from quantflow.report.charts.marks import Bar
from quantflow.report.contexts import TOKENIZER_FILE, DivergentContext, divergent_contexts
from quantflow.report.html import render_html
from quantflow.report.llama_rows import llama_rows
from quantflow.report.model import Report
from quantflow.report.redaction import redact
from quantflow.report.text import TextLevel
from quantflow.report.wording import load_wording
from quantflow.report.write import report_json
from tests.report.samples import artifact, report
from tests.report.test_html import Page

EN = load_wording("en")
N = 400


def detailed() -> Divergence:
    rng = np.random.default_rng(0)
    nll = rng.exponential(2.0, N)
    kl = rng.exponential(0.05, N)
    document = np.repeat(np.arange(40, dtype=np.int32), N // 40)
    confidence = np.linspace(0.05, 0.999, N, dtype=np.float32)
    baseline = Samples(document, nll)
    measured = Samples(document, nll + 0.02, kl=kl, top1=kl < 0.1, confidence=confidence)
    worst = WorstPosition(
        document="letter <b>7</b>",
        slice="billing",
        kl=3.2,
        confidence=0.97,
        same_top1=False,
        target=None,
        context=(),
        likeliest_before=None,
        likeliest=None,
    )
    block = llama_cpp_block(baseline, measured, np.ones(N, dtype=np.bool_))
    return Divergence(llama_cpp=block, by_confidence=by_confidence(measured), worst=(worst,))


def shown() -> Report:
    return report(Verdict.PASS, Verdict.PASS, artifacts=(artifact(Verdict.PASS, divergence=detailed()),))


def test_every_range_of_confidence_is_a_bar_and_a_row() -> None:
    chart = confidence_chart(shown(), EN)
    assert chart
    bars = [mark for mark in chart.marks if isinstance(mark, Bar)]
    assert len(bars) == len(chart.table.rows) == len(detailed().by_confidence) == len(chart.x_ticks)
    assert [tick.text for tick in chart.x_ticks][-1] == "99–100 %"
    highest = max(detailed().by_confidence, key=lambda found: found.kl_mean)
    tallest = max(bars, key=lambda bar: bar.height)
    assert f"{100 * highest.low:g}–{100 * highest.high:g} %" in tallest.tip


def test_a_run_without_it_has_no_such_drawing() -> None:
    assert confidence_chart(report(Verdict.PASS, Verdict.PASS), EN) is None


def test_llama_cpp_s_figures_keep_their_names_order_and_errors() -> None:
    block = detailed().llama_cpp
    assert block
    rows = list(llama_rows(block))
    assert [name for name, _, _ in rows][:3] == ["positions", "ppl_q", "ppl_base"]
    assert ("positions", "400", "–") in rows
    assert next(error for name, _, error in rows if name == "kld_mean") != "–"


def test_the_page_shows_where_it_diverges_most() -> None:
    page = render_html(shown())
    assert "Where int4-awq diverges most" in page
    assert "letter &lt;b&gt;7&lt;/b&gt;" in page and "97.0" in page
    assert "llama.cpp's figures of int4-awq" in Page(page).words


CONTEXT = DivergentContext(
    before="Pay by <i>Friday</i>, please", came="\n", baseline=" Kind", artifact="<script>"
)


def told() -> Report:
    own = artifact(Verdict.PASS, divergence=detailed(), contexts=(CONTEXT,))
    return report(Verdict.PASS, Verdict.PASS, artifacts=(own,))


def test_the_page_shows_what_came_before_and_what_both_expect() -> None:
    page = render_html(told())
    assert "Pay by &lt;i&gt;Friday&lt;/i&gt;, please" in page
    assert "<code>↵</code>" in page and "<code>␣Kind</code>" in page and "<code>&lt;script&gt;</code>" in page


@pytest.mark.parametrize("level", ["redacted", "none"])
def test_contexts_are_text_that_a_report_may_not_hold(level: TextLevel) -> None:
    poorer = redact(told(), level)
    for file in (render_html(poorer), report_json(poorer)):
        assert not any(word in file for word in ("Friday", "please", "Kind"))
    assert "letter &lt;b&gt;7&lt;/b&gt;" in render_html(poorer)  # where it was is no text


def test_tokens_become_text_with_the_model_s_own_tokenizer(tmp_path: Path) -> None:
    tokenizer = Tokenizer(WordLevel({"the": 0, "amount": 1, "due": 2, "<|end|>": 3}, unk_token="the"))
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.save(str(tmp_path / TOKENIZER_FILE))
    (worst,) = detailed().worst
    known = worst.model_copy(update={"context": (0, 1), "target": 2, "likeliest_before": 2, "likeliest": 3})
    assert divergent_contexts((known,), tmp_path) == (
        DivergentContext(before="the amount", came="due", baseline="due", artifact="<|end|>"),
    )
    (tmp_path / TOKENIZER_FILE).unlink()
    assert divergent_contexts((known,), tmp_path) == ()
