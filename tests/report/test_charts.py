"""Drawings say the same as the figures they are drawn from."""

from itertools import pairwise

import pytest

from quantflow.data.documents import Counts
from quantflow.gate.verdict import Verdict
from quantflow.report.charts.interval import WIDTH, interval_chart
from quantflow.report.charts.marks import Dot, Label
from quantflow.report.charts.scale import linear, logarithmic
from quantflow.report.charts.slices import slice_chart
from quantflow.report.charts.spread import spread_chart
from quantflow.report.charts.tokens import token_bar
from quantflow.report.charts.tradeoff import tradeoff_chart
from quantflow.report.charts.trend import trend_chart
from quantflow.report.html import render_html
from quantflow.report.model import TrendPoint
from quantflow.report.wording import load_wording
from tests.report.samples import accounting, artifact, criterion, measurement, report

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


def points(*kls: float | None) -> tuple[TrendPoint, ...]:
    return tuple(
        TrendPoint(
            run_id=f"run-{number}",
            started=f"2026-11-{10 + number}T02:00:00+00:00",
            artifact="int4-awq",
            verdict=Verdict.FAIL if number == 1 else Verdict.PASS,
            perplexity_increase=0.08,
            kl_mean=kl,
        )
        for number, kl in enumerate(kls)
    )


def test_earlier_runs_are_a_line_in_which_those_that_did_not_pass_stand_out() -> None:
    chart = trend_chart(report(Verdict.PASS, Verdict.PASS, trend=points(0.05, 0.09, None, 0.051)), EN)
    assert chart
    dots = [mark for mark in chart.marks if isinstance(mark, Dot)]
    assert ["hollow" in dot.style for dot in dots] == [False, True, False]
    assert [tick.text for tick in chart.x_ticks] == ["2026-11-10", "2026-11-13"]
    assert len(chart.table.rows) == 4


def test_one_earlier_run_is_no_line() -> None:
    assert trend_chart(report(Verdict.PASS, Verdict.PASS, trend=points(0.05)), EN) is None
    assert 'id="trend"' not in render_html(report(Verdict.PASS, Verdict.PASS, trend=points(0.05)))


def test_size_against_kl_has_the_baseline_every_artifact_and_the_yardstick() -> None:
    own = artifact(Verdict.PASS, yardstick=measurement(3.0, kl=True))
    chart = tradeoff_chart(report(Verdict.PASS, Verdict.PASS, artifacts=(own,)), EN)
    assert chart
    assert [row[0] for row in chart.table.rows] == ["Baseline", "int4-awq", "int4-awq, rounded to nearest"]
    tips = {mark.tip.partition(":")[0]: mark for mark in chart.marks if isinstance(mark, Dot)}
    assert tips["Baseline"].x > tips["int4-awq"].x and tips["Baseline"].y > tips["int4-awq"].y
    assert tips["int4-awq, rounded to nearest"].y < tips["int4-awq"].y
    assert tradeoff_chart(report(Verdict.PASS, Verdict.PASS, baseline=None), EN) is None


def test_labels_of_points_in_one_place_do_not_cover_one_another() -> None:
    same = tuple(artifact(Verdict.PASS, name=f"twin-{number}") for number in range(5))
    chart = tradeoff_chart(report(Verdict.PASS, Verdict.PASS, artifacts=same), EN)
    assert chart
    heights = sorted(m.y for m in chart.marks if isinstance(m, Label) and m.text.startswith("twin"))
    assert all(after - before >= 13 for before, after in pairwise(heights))


def test_the_spread_of_kl_goes_down_from_half_of_the_tokens_to_one() -> None:
    chart = spread_chart(report(Verdict.PASS, Verdict.PASS), EN)
    assert chart
    assert chart.table.rows[0] == ("50.0 %", "0.0214")
    assert chart.table.rows[-1] == ("0.005 %", "4.2119")
    xs = [mark.x for mark in chart.marks if isinstance(mark, Dot)]
    assert xs == sorted(xs)


def test_an_artifact_equal_to_its_baseline_has_no_spread_to_draw() -> None:
    equal = artifact(Verdict.PASS, measurements=measurement(0.0, kl=True))
    assert spread_chart(report(Verdict.PASS, Verdict.PASS, artifacts=(equal,)), EN) is None


def test_slices_are_drawn_the_worst_first() -> None:
    chart = slice_chart(report(Verdict.PASS, Verdict.PASS), EN)
    assert chart
    assert [tick.text for tick in chart.y_ticks] == ["orders", "devices", "billing", "articles"]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0.131], [0.0, 0.05, 0.1, 0.15]),
        ([273.0, 118.0], [0.0, 100.0, 200.0, 300.0]),
        ([0.0], [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        ([4.2e-7], [0.0, 1e-7, 2e-7, 3e-7, 4e-7, 5e-7]),
    ],
)
def test_axes_are_written_in_round_values(values: list[float], ticks: list[float]) -> None:
    shown = linear(values, 0, 100).ticks(lambda value: f"{value:.6g}")
    assert [float(tick.text) for tick in shown] == pytest.approx(ticks)


def test_a_logarithmic_axis_has_whole_decades_and_bears_zero() -> None:
    scale = logarithmic([0.0, 0.02, 5.3], 0, 100)
    assert [tick.text for tick in scale.ticks(lambda value: f"{value:g}")] == ["0.01", "0.1", "1", "10"]
    assert scale(0.0) == 0 and scale(10.0) == 100
