"""The report as one HTML file that loads nothing, runs its own script only and escapes every text."""

from functools import cache, partial

from jinja2 import Template

from quantflow.measure.speed_value import SPEED_METRICS
from quantflow.report import figures
from quantflow.report.advice import next_steps
from quantflow.report.changes_lines import (
    changed,
    flips_line,
    generation_line,
    pair_line,
    recovery_line,
    task_line,
)
from quantflow.report.charts.confidence import confidence_chart
from quantflow.report.charts.frontier import frontier_chart
from quantflow.report.charts.heat import heat_chart
from quantflow.report.charts.interval import interval_chart
from quantflow.report.charts.slices import slice_chart
from quantflow.report.charts.spread import spread_chart
from quantflow.report.charts.tokens import TOKEN_FATES, token_bar
from quantflow.report.charts.tradeoff import tradeoff_chart
from quantflow.report.charts.trend import trend_chart
from quantflow.report.differences import marked
from quantflow.report.drift_lines import drift_lines
from quantflow.report.lines import (
    decision_line,
    kept_line,
    leakage_line,
    reading_line,
    saving_line,
    scheme_line,
)
from quantflow.report.llama_rows import llama_rows
from quantflow.report.measures import (
    show_change,
    show_margin,
    show_metric,
    show_part,
    show_sample,
    show_value,
)
from quantflow.report.model import Report
from quantflow.report.page import page_environment
from quantflow.report.sensitivity_lines import assignment_line, scan_line
from quantflow.report.verdict import by_slice, deciding, errors, headline, leading, why
from quantflow.report.wording import Language, load_wording

SECTIONS = (
    "criteria",
    "lossless",
    "cost",
    "sensitivity",
    "divergence",
    "changes",
    "slices",
    "data",
    "drift",
    "trend",
    "events",
    "provenance",
    "glossary",
)
MOST_WHYS = 6
"""Criteria that the verdict is explained by; more than these nobody reads in a minute."""
SHOWN_PAIRS = 10
"""Pairs of outputs on the page, of each artifact; report.json has more."""
RESOLVED = "recipe_resolved"
"""Of the provenance: every key of the recipe, most of them defaults."""
KL_ROWS = ("mean", "median", "p90", "p95", "p99", "p999", "max")
GLOSSARY = (
    "artifact",
    "baseline",
    "perplexity",
    "kl",
    "agreement",
    "interval",
    "margin",
    "inconclusive",
    "advisory",
    "floor",
    "levels",
    "sets",
    "group",
    "unit",
    "nearest",
    "slice",
    "event",
)


def render_html(report: Report) -> str:
    """Render a report in its language; equal reports give equal text.

    Every text of the report is escaped. The page's content security policy forbids everything from elsewhere,
    and every style and script but the page's own, which it knows by their hashes.
    """
    tables = [table for item in report.provenance.items() if (table := figures.as_table(*item))]
    tabled = {table.name for table in tables}
    apart = tabled | {RESOLVED}
    pairs = {name: value for name, value in report.provenance.items() if name not in apart}
    words = load_wording(report.language)
    return _template(report.language).render(
        report=report,
        sections=_sections(report),
        headline=headline(report, words),
        deciding=deciding(report),
        leading=leading(report),
        by_slice=by_slice(report),
        errors=errors(report),
        next_steps=next_steps(report, words),
        glossary=GLOSSARY,
        provenance_pairs=figures.flatten(pairs),
        provenance_tables=tables,
        resolved=figures.flatten(report.provenance.get(RESOLVED, {})),
    )


def _sections(report: Report) -> list[str]:
    """The sections that this report has something for."""
    absent = set()
    if not any(artifact.sensitivity or artifact.assignment for artifact in report.artifacts):
        absent.add("sensitivity")
    if not any(artifact.lossless for artifact in report.artifacts):
        absent.add("lossless")
    if not any(map(changed, report.artifacts)):
        absent.add("changes")
    if report.data is None or report.data.drift is None:
        absent.add("drift")
    if trend_chart(report, load_wording(report.language)) is None:
        absent.add("trend")
    return [section for section in SECTIONS if section not in absent]


@cache
def _template(language: Language) -> Template:
    words = load_wording(language)
    worded = (
        why,
        interval_chart,
        tradeoff_chart,
        spread_chart,
        slice_chart,
        heat_chart,
        frontier_chart,
        token_bar,
        show_metric,
        show_part,
        show_sample,
        show_value,
        scheme_line,
        reading_line,
        kept_line,
        leakage_line,
        saving_line,
        decision_line,
        trend_chart,
        confidence_chart,
        assignment_line,
        scan_line,
        generation_line,
        pair_line,
        recovery_line,
        task_line,
        flips_line,
        drift_lines,
    )
    return page_environment(language).get_template(
        "report.html.j2",
        globals={
            **{function.__name__: partial(function, words=words) for function in worded},
            "changed": changed,
            "llama_rows": llama_rows,
            "marked": marked,
            "SHOWN_PAIRS": SHOWN_PAIRS,
            "MOST_WHYS": MOST_WHYS,
            "show_change": show_change,
            "show_margin": show_margin,
            "TOKEN_FATES": TOKEN_FATES,
            "KL_ROWS": KL_ROWS,
            "SPEED_METRICS": SPEED_METRICS,
        },
    )
