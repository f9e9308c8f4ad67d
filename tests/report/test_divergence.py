"""Divergence in detail: by confidence, where it is largest, and llama.cpp's figures."""

import numpy as np

from quantflow.gate.divergence import Divergence
from quantflow.gate.verdict import Verdict
from quantflow.measure.divergence_detail import WorstPosition, by_confidence
from quantflow.measure.llama_cpp import llama_cpp_block
from quantflow.measure.measurement import Samples
from quantflow.report.charts.confidence import confidence_chart
from quantflow.report.charts.marks import Bar
from quantflow.report.html import render_html
from quantflow.report.llama_rows import llama_rows
from quantflow.report.model import Report
from quantflow.report.wording import load_wording
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
