"""A report as Markdown, short enough for a job's summary page."""

import re

from quantflow.gate.criteria import CriterionResult
from quantflow.report.figures import size
from quantflow.report.measures import show_change, show_sample, show_value
from quantflow.report.model import Report
from quantflow.report.wording import load_wording

_ENGLISH = load_wording("en")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&])")
MARKS = {"pass": "✅", "fail": "❌", "inconclusive": "❔", "error": "⛔"}
MOST_EVENTS = 20
"""Of a summary; all are in the report."""


def markdown(report: Report) -> str:
    """GitHub-flavoured Markdown: verdict, criteria, artifacts, events.

    Text of models and data is escaped, so that it neither marks up nor links anything.
    """
    lines = [
        f"## {MARKS[report.verdict]} {escape(report.title)}: {report.verdict.value}",
        "",
        escape(report.reason),
        "",
        "| artifact | criterion | baseline | value | change | 90 % interval | margin | sample | verdict |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
        *map(_row, report.criteria),
        "",
        "| artifact | format | size | verdict |",
        "| --- | --- | ---: | --- |",
        *(
            f"| {escape(a.name)} | {escape(a.format)} | {'–' if a.bytes is None else size(a.bytes)} "
            f"| {MARKS[a.verdict]} {a.verdict.value} |"
            for a in report.artifacts
        ),
    ]
    for decision in report.decisions:
        what = decision.kind if decision.criterion is None else f"waiver of {decision.criterion}"
        until = f" until {decision.until}" if decision.until else ""
        who = f"{escape(decision.by)}, {escape(decision.at)}"
        lines += ["", f"**{escape(what)}**{until} by {who}: {escape(decision.reason)}"]
    if report.events:
        lines += ["", f"**Events ({len(report.events)})**", ""]
        lines += [f"- `{e.code}` {escape(e.message)}" for e in report.events[:MOST_EVENTS]]
        if len(report.events) > MOST_EVENTS:
            lines.append(f"- and {len(report.events) - MOST_EVENTS} more in the report")
    lines += ["", f"Run {escape(report.run_id)}, recipe {escape(report.recipe)}."]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _row(criterion: CriterionResult) -> str:
    name = criterion.metric if criterion.slice == "all" else f"{criterion.metric}, {criterion.slice}"
    interval = "–"
    if criterion.ci_low is not None and criterion.ci_high is not None:
        low, high = (show_change(criterion, end) for end in (criterion.ci_low, criterion.ci_high))
        interval = f"{low} … {high}"
    cells = (
        escape(criterion.artifact),
        escape(name) + ("" if criterion.required else " (advisory)"),
        show_value(criterion, criterion.baseline, _ENGLISH),
        show_value(criterion, criterion.value, _ENGLISH),
        show_change(criterion, criterion.delta),
        interval,
        show_change(criterion, criterion.margin),
        escape(show_sample(criterion, _ENGLISH)),
        f"{MARKS[criterion.verdict]} {criterion.verdict.value}",
    )
    return f"| {' | '.join(cells)} |"
