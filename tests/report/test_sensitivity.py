"""The map of units, the frontier and what is said of them: the scan's and the assignment's own figures."""

import re

import pytest

from quantflow.gate.verdict import Verdict
from quantflow.report.charts.frontier import frontier_chart
from quantflow.report.charts.heat import STEPS, heat_chart
from quantflow.report.charts.marks import Bar, Dot, Label
from quantflow.report.html import render_html
from quantflow.report.sensitivity_lines import assignment_line, scan_line
from quantflow.report.wording import load_wording
from tests.report.samples import artifact, report
from tests.report.scans import KINDS, assignment, scan

EN = load_wording("en")


def cells(blocks: int) -> list[Bar]:
    chart = heat_chart(scan(blocks), "int4", assignment(blocks), EN)
    assert chart
    return [mark for mark in chart.marks if isinstance(mark, Bar)]


def test_every_unit_has_one_cell_and_one_row_of_the_table() -> None:
    chart = heat_chart(scan(30), "int4", assignment(30), EN)
    assert chart
    assert len([mark for mark in chart.marks if isinstance(mark, Bar)]) == 30 * len(KINDS) + 1
    assert len(chart.table.rows) == 30 * len(KINDS) + 1
    assert [tick.text for tick in chart.y_ticks] == [*KINDS, "lm_head"]


def test_the_costliest_unit_is_darkest_and_the_cheapest_lightest() -> None:
    by_kl = sorted(scan(30).scores, key=lambda score: score.kl)
    style = {mark.tip.partition(":")[0]: mark.style for mark in cells(30)}
    assert style[by_kl[-1].unit] == f"heat heat-{STEPS - 1}"
    assert style[by_kl[0].unit] == "heat heat-0"


def test_spared_units_are_marked_and_said_to_be() -> None:
    chart = heat_chart(scan(4), "int4", assignment(4), EN)
    assert chart
    crosses = [mark for mark in chart.marks if isinstance(mark, Label)]
    assert len(crosses) == len(assignment(4).spared) == 2
    assert sum("spared, stays in float16" in mark.tip for mark in chart.marks if isinstance(mark, Bar)) == 2


def test_a_unit_that_costs_nothing_is_drawn_too() -> None:
    flat = scan(4).model_copy(
        update={"scores": tuple(s.model_copy(update={"kl": 0.0}) for s in scan(4).scores)}
    )
    chart = heat_chart(flat, "int4", None, EN)
    assert chart
    assert {mark.style for mark in chart.marks if isinstance(mark, Bar)} == {"heat heat-0"}


def test_a_precision_that_was_not_scanned_has_no_map() -> None:
    assert heat_chart(scan(4), "int8", None, EN) is None


@pytest.mark.parametrize("blocks", [1, 4, 200])
def test_the_map_keeps_inside_its_frame(blocks: int) -> None:
    chart = heat_chart(scan(blocks), "int4", None, EN)
    assert chart
    left, top, right, bottom = chart.frame
    for mark in chart.marks:
        assert isinstance(mark, Bar)
        assert left <= mark.x and mark.x + mark.width <= right + 0.5
        assert top <= mark.y and mark.y + mark.height <= bottom
    assert chart.width <= 1100


def test_the_frontier_shows_the_chosen_point_and_what_was_measured() -> None:
    chart = frontier_chart(assignment(30), EN)
    assert chart
    dots = [mark for mark in chart.marks if isinstance(mark, Dot)]
    assert sum("large" in dot.style for dot in dots) == 1
    assert [dot.tip for dot in dots if "hollow" in dot.style] == [
        "0 spared, measured as a whole: KL 0.4240 nats per token",
        "2 spared, measured as a whole: KL 0.2110 nats per token",
    ]
    assert len(chart.table.rows) == len(assignment(30).frontier)


def test_a_frontier_of_one_point_is_no_drawing() -> None:
    alone = assignment(4)
    assert frontier_chart(alone.model_copy(update={"frontier": alone.frontier[:1]}), EN) is None


def test_the_assignment_in_words() -> None:
    text = assignment_line(assignment(30), EN)
    assert text.startswith("2 of 121 units are spared (1.7 % of the weights")
    assert "mean KL is 0.2110 nats per token, 0.4240 with nothing spared" in text
    assert "1.09 times the sum of its parts" in text


def test_an_artifact_that_remedies_alone_mended_is_told_as_such() -> None:
    found = assignment(30)
    kept = tuple(decision.model_copy(update={"spared": False}) for decision in found.decisions)
    text = assignment_line(found.model_copy(update={"decisions": kept}), EN)
    assert text.startswith("No unit is spared.")
    assert "mean KL is 0.2110 nats per token with remedies for INT8 inputs, 0.4240 without" in text


def test_the_scan_s_controls_in_words() -> None:
    assert "two halves of the text rank units alike to 0.981" in scan_line(scan(4), EN)


def test_the_page_has_the_section_where_there_is_something_to_show_only() -> None:
    shown = artifact(Verdict.PASS, sensitivity=scan(4), assignment=assignment(4))
    page = render_html(report(Verdict.PASS, Verdict.PASS, artifacts=(shown,)))
    for text in ('id="sensitivity"', "What was spared, and why", "KL against size", "Rounds of the search"):
        assert text in page
    assert 'id="sensitivity"' not in render_html(report(Verdict.PASS, Verdict.PASS))


def test_reasons_are_escaped() -> None:
    hostile = assignment(4)
    reasoned = hostile.decisions[0].model_copy(update={"spared": True, "reason": "<script>alert(1)</script>"})
    hostile = hostile.model_copy(update={"decisions": (reasoned, *hostile.decisions[1:])})
    shown = artifact(Verdict.PASS, sensitivity=scan(4), assignment=hostile)
    page = render_html(report(Verdict.PASS, Verdict.PASS, artifacts=(shown,)))
    assert len(re.findall("<script>", page)) == 1
