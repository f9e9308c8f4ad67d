"""The report as one HTML file that loads nothing, runs its own script only and escapes every text."""

import base64
import hashlib
from functools import cache, partial

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from quantflow.measure.speed_value import SPEED_METRICS
from quantflow.report import figures
from quantflow.report.advice import next_steps
from quantflow.report.charts.interval import interval_chart
from quantflow.report.charts.slices import slice_chart
from quantflow.report.charts.spread import spread_chart
from quantflow.report.charts.tokens import TOKEN_FATES, token_bar
from quantflow.report.charts.tradeoff import tradeoff_chart
from quantflow.report.lines import kept_line, reading_line, scheme_line
from quantflow.report.measures import show_change, show_margin, show_sample, show_value
from quantflow.report.model import Report
from quantflow.report.text import shown, whole
from quantflow.report.verdict import deciding, errors, headline, why
from quantflow.report.wording import Language, load_wording

SECTIONS = ("criteria", "cost", "divergence", "slices", "data", "events", "provenance", "glossary")
STYLES = ("base.css", "charts.css", "narrow.css", "print.css")
SCRIPT = "report.js"
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
    "sets",
    "group",
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
    pairs = {name: value for name, value in report.provenance.items() if name not in tabled}
    words = load_wording(report.language)
    return (
        _environment(report.language)
        .get_template("report.html.j2")
        .render(
            report=report,
            sections=SECTIONS,
            headline=headline(report, words),
            deciding=deciding(report),
            errors=errors(report),
            next_steps=next_steps(report, words),
            glossary=GLOSSARY,
            provenance_pairs=figures.flatten(pairs) if pairs else [],
            provenance_tables=tables,
        )
    )


def policy(style: str, script: str) -> str:
    """The content security policy of a page with this style and this script, and nothing else."""
    own = f"style-src {_hash(style)}; script-src {_hash(script)}"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


@cache
def _environment(language: Language) -> Environment:
    words = load_wording(language)
    environment = Environment(
        loader=PackageLoader("quantflow.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: shown(value, words) if type(value) is str else value,
    )
    style, script = "".join(map(_source, STYLES)), _source(SCRIPT)
    environment.filters.update(
        count=figures.count,
        size=figures.size,
        perplexity=figures.perplexity,
        nats=figures.nats,
        percent=figures.percent,
        signed_percent=figures.signed_percent,
        seconds=figures.seconds,
        flatten=figures.flatten,
        whole=whole,
    )
    environment.globals.update(
        t=words,
        style=Markup(style),
        script=Markup(script),
        policy=policy(style, script),
        why=partial(why, words=words),
        interval_chart=partial(interval_chart, words=words),
        tradeoff_chart=partial(tradeoff_chart, words=words),
        spread_chart=partial(spread_chart, words=words),
        slice_chart=partial(slice_chart, words=words),
        token_bar=partial(token_bar, words=words),
        show_change=show_change,
        show_margin=show_margin,
        show_sample=partial(show_sample, words=words),
        show_value=partial(show_value, words=words),
        scheme_line=partial(scheme_line, words=words),
        reading_line=partial(reading_line, words=words),
        kept_line=partial(kept_line, words=words),
        TOKEN_FATES=TOKEN_FATES,
        KL_ROWS=KL_ROWS,
        SPEED_METRICS=SPEED_METRICS,
    )
    return environment


def _source(name: str) -> str:
    loader = PackageLoader("quantflow.report")
    return loader.get_source(Environment(autoescape=True), name)[0]
