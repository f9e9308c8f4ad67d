"""Drawings say the same as the figures they are drawn from."""

import pytest

from quantflow.data.documents import Counts
from quantflow.gate.verdict import Verdict
from quantflow.report.charts.interval import WIDTH, interval_chart
from quantflow.report.charts.tokens import token_bar
from quantflow.report.wording import load_wording
from tests.report.samples import accounting, criterion

EN = load_wording("en")


@pytest.mark.parametrize("name", ["perplexity", "kl"])
def test_the_interval_lies_where_its_verdict_says(name: str) -> None:
    passed, failed, undecided = (
        interval_chart(criterion(name, verdict), EN)
        for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE)
    )
    assert passed and passed.high and passed.high < passed.margin
    assert failed and failed.low and failed.low > failed.margin
    assert undecided and undecided.low and undecided.high
    assert undecided.low < undecided.margin < undecided.high


@pytest.mark.parametrize(
    ("delta", "low", "high", "margin"),
    [(0.0, 0.0, 0.0, 0.0), (-0.5, -0.6, -0.4, 0.01), (1e6, 9e5, 2e6, 0.03), (1e-12, 0.0, 1e-11, 0.05)],
)
def test_a_drawing_keeps_inside_its_frame_and_in_order(
    delta: float, low: float, high: float, margin: float
) -> None:
    chart = interval_chart(
        criterion("kl", Verdict.PASS, delta=delta, ci_low=low, ci_high=high, margin=margin), EN
    )
    assert chart and chart.low is not None and chart.high is not None
    assert all(0 <= x <= WIDTH for x in (chart.zero, chart.margin, chart.point, chart.low, chart.high))
    assert chart.low <= chart.point <= chart.high
    assert (chart.zero <= chart.point) == (delta >= 0)


def test_nothing_measured_is_not_drawn_and_no_interval_is_a_point() -> None:
    assert interval_chart(criterion("kl", Verdict.ERROR), EN) is None
    chart = interval_chart(criterion("kl", Verdict.INCONCLUSIVE, ci_low=None, ci_high=None), EN)
    assert chart and chart.low is None and chart.high is None
    assert chart.description == "change 0.1413, margin 0.15"


def test_a_bar_of_tokens_is_whole_and_in_proportion() -> None:
    split = accounting().splits["calibration"]
    bar = token_bar(split, EN)
    assert [segment.kind for segment in bar] == ["used", "undrawn", "incomplete"]
    assert sum(segment.width for segment in bar) == pytest.approx(100, abs=0.01)
    assert bar[0].width == pytest.approx(100 * 16384 / 40512, abs=0.01)
    assert bar[1].start == pytest.approx(bar[0].width, abs=0.01)
    assert bar[0].label == "16,384 tokens in windows"


def test_a_split_without_tokens_has_an_empty_bar() -> None:
    empty = accounting().splits["calibration"].model_copy(update={"total": Counts()})
    assert token_bar(empty, EN) == []
