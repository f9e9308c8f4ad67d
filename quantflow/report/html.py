"""The report as one HTML file that loads nothing, runs nothing and escapes every text."""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from quantflow.measure.speed_value import SPEED_METRICS
from quantflow.report import figures
from quantflow.report.charts import TOKEN_FATES, interval_chart, show_margin, token_bar
from quantflow.report.measures import show_change, show_sample, show_value
from quantflow.report.model import Report
from quantflow.report.wording import headline, next_steps, reading_line, scheme_line

KL_ROWS = (
    ("mean", "KL divergence, mean"),
    ("median", "KL, median"),
    ("p90", "KL, 90th percentile"),
    ("p95", "KL, 95th percentile"),
    ("p99", "KL, 99th percentile"),
    ("p999", "KL, 99.9th percentile"),
    ("max", "KL, largest"),
)
CRITERION_NAMES = {
    "perplexity": "Perplexity",
    "kl": "KL divergence",
    "baseline": "Baseline reads the text",
    "speed": "Speed",
    "memory": "Memory",
}
SPLIT_USES = {
    "calibration": "what codes are fitted on",
    "selection": "held out for choices",
    "evaluation": "what the gate judges on, and nothing else",
}


def render_html(report: Report) -> str:
    """Render a report; equal reports give equal text.

    Every text of the report is escaped. The page has no script and a content security policy that forbids
    scripts and anything from elsewhere.
    """
    tables = [table for item in report.provenance.items() if (table := figures.as_table(*item))]
    tabled = {table.name for table in tables}
    pairs = {name: value for name, value in report.provenance.items() if name not in tabled}
    template = _environment().get_template("report.html.j2")
    return template.render(
        report=report,
        headline=headline(report),
        next_steps=next_steps(report),
        provenance_pairs=figures.flatten(pairs) if pairs else [],
        provenance_tables=tables,
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("quantflow.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        count=figures.count,
        size=figures.size,
        perplexity=figures.perplexity,
        nats=figures.nats,
        percent=figures.percent,
        signed_percent=figures.signed_percent,
        seconds=figures.seconds,
        flatten=figures.flatten,
        reading_line=reading_line,
        scheme_line=scheme_line,
    )
    environment.globals.update(
        interval_chart=interval_chart,
        show_change=show_change,
        show_margin=show_margin,
        show_sample=show_sample,
        show_value=show_value,
        token_bar=token_bar,
        TOKEN_FATES=TOKEN_FATES,
        KL_ROWS=KL_ROWS,
        SPEED_METRICS=SPEED_METRICS,
        CRITERION_NAMES=CRITERION_NAMES,
        SPLIT_USES=SPLIT_USES,
    )
    return environment
