"""The end of a run on the terminal: the criteria as a table, the verdict as a line."""

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from quantflow.gate.criteria import CriterionResult
from quantflow.gate.verdict import Verdict
from quantflow.report.figures import size
from quantflow.report.measures import BYTES, RELATIVE, show_sample
from quantflow.report.model import Report
from quantflow.report.wording import load_wording

_ENGLISH = load_wording("en")
# Columns to measure a table in, more than any figure needs.
WIDEST = 1000

STYLES = {
    Verdict.PASS: "bold green",
    Verdict.FAIL: "bold red",
    Verdict.INCONCLUSIVE: "bold yellow",
    Verdict.ERROR: "bold red",
}


def criteria_view(report: Report, width: int) -> RenderableType:
    """Every criterion of every artifact: a table where it fits, else a few lines each.

    Args:
        report: A run's report.
        width: Columns of the terminal.
    """
    table = _table(report)
    if Console(width=WIDEST).measure(table).maximum <= width:
        return table
    return Group(*(_lines(criterion) for criterion in report.criteria), "")


def _lines(criterion: CriterionResult) -> Text:
    return Text.assemble(
        (criterion.verdict.value, STYLES[criterion.verdict]),
        f"  {criterion.artifact}, {_name(criterion)}: {_change(criterion, criterion.delta)} "
        f"({_plain(criterion, criterion.baseline)} → {_plain(criterion, criterion.value)}, "
        f"90 % interval {_interval(criterion)}, margin {_change(criterion, criterion.margin)}, "
        f"{show_sample(criterion, load_wording('en'))})",
    )


def _table(report: Report) -> Table:
    """One row for each criterion of each artifact: values, interval against margin, verdict."""
    table = Table(box=box.SIMPLE_HEAD, title=None)
    for heading in ("", "criterion"):
        table.add_column(heading, no_wrap=True)
    for heading in ("baseline", "artifact", "change", "90 % interval", "margin", "sample"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    for criterion in report.criteria:
        table.add_row(
            escape(criterion.artifact),
            escape(_name(criterion)),
            _plain(criterion, criterion.baseline),
            _plain(criterion, criterion.value),
            _change(criterion, criterion.delta),
            _interval(criterion),
            _change(criterion, criterion.margin),
            show_sample(criterion, _ENGLISH),
            Text(criterion.verdict.value, style=STYLES[criterion.verdict]),
        )
    return table


def verdict_line(report: Report) -> Text:
    """The verdict and why."""
    return Text.assemble((report.verdict.value.upper(), STYLES[report.verdict]), f": {report.reason}")


def _interval(criterion: CriterionResult) -> str:
    return f"{_change(criterion, criterion.ci_low)} … {_change(criterion, criterion.ci_high)}"


def _name(criterion: CriterionResult) -> str:
    """The metric and, of speed, at how many requests."""
    return criterion.metric if criterion.slice == "all" else f"{criterion.metric}, {criterion.slice}"


def _plain(criterion: CriterionResult, value: float | None) -> str:
    if value is None:
        return "–"
    return size(round(value)) if criterion.metric in BYTES else f"{value:.4g}"


def _change(criterion: CriterionResult, value: float | None) -> str:
    """Most change by a percentage; KL is its own change, in nats per token, and a peak is bytes."""
    if value is None:
        return "–"
    if criterion.metric in RELATIVE:
        return f"{100 * value:+.2f} %"
    return size(round(value)) if criterion.metric in BYTES else f"{value:.4f}"
