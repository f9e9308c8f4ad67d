"""Mean KL by how sure the baseline was of its next token."""

from quantflow.measure.divergence_detail import ConfidenceRange
from quantflow.report.charts.marks import Bar, Chart, Key, Mark, Tick, series
from quantflow.report.charts.scale import linear
from quantflow.report.figures import Table, count, nats, percent
from quantflow.report.model import ArtifactReport, Report
from quantflow.report.wording import Wording

WIDTH, HEIGHT = 520.0, 280.0
FRAME = (62.0, 14.0, 506.0, 230.0)
_FILLED = 0.8  # of a range's width; the rest keeps ranges apart


def confidence_chart(report: Report, words: Wording) -> Chart | None:
    """Draw one group of bars for each range of confidence; None where no artifact has any."""
    artifacts = [a for a in report.artifacts if a.divergence is not None and a.divergence.by_confidence]
    if not artifacts:
        return None
    ranges = sorted({(r.low, r.high) for a in artifacts for r in _ranges(a)})
    left, top, right, bottom = FRAME
    y = linear([r.kl_mean for a in artifacts for r in _ranges(a)], bottom, top)
    width = (right - left) / len(ranges)
    marks: list[Mark] = []
    for index, artifact in enumerate(artifacts):
        for found in _ranges(artifact):
            place = left + width * (ranges.index((found.low, found.high)) + (1 - _FILLED) / 2)
            bar = _FILLED * width / len(artifacts)
            marks.append(
                Bar(
                    round(place + bar * index, 2),
                    y(found.kl_mean),
                    round(bar, 2),
                    round(bottom - y(found.kl_mean), 2),
                    series(index),
                    words(
                        "confidence.bar",
                        artifact=artifact.name,
                        range=_named(found.low, found.high),
                        kl=nats(found.kl_mean),
                        agreement=percent(found.top1_agreement),
                        share=percent(found.share_of_kl),
                        positions=count(found.positions),
                    ),
                )
            )
    ticks = tuple(Tick(left + width * (i + 0.5), _named(*ends)) for i, ends in enumerate(ranges))
    return Chart(
        title=words("confidence.plot"),
        note=words("confidence.plot_note"),
        x_label=words("confidence.x"),
        y_label=words("confidence.y"),
        width=WIDTH,
        height=HEIGHT,
        frame=FRAME,
        x_ticks=ticks,
        y_ticks=y.ticks(lambda value: f"{value:.4g}"),
        marks=tuple(marks),
        table=_table(artifacts, words),
        keys=tuple(Key(series(index), artifact.name) for index, artifact in enumerate(artifacts)),
    )


def _ranges(artifact: ArtifactReport) -> tuple[ConfidenceRange, ...]:
    return artifact.divergence.by_confidence if artifact.divergence is not None else ()


def _named(low: float, high: float) -> str:
    return f"{100 * low:g}–{100 * high:g} %"


def _table(artifacts: list[ArtifactReport], words: Wording) -> Table:
    columns = ("artifact", "range", "positions", "kl", "agreement", "share")
    rows = tuple(
        (
            artifact.name,
            _named(found.low, found.high),
            count(found.positions),
            nats(found.kl_mean),
            percent(found.top1_agreement),
            percent(found.share_of_kl),
        )
        for artifact in artifacts
        for found in _ranges(artifact)
    )
    title = words("confidence.plot")
    return Table(title, tuple(words(f"confidence.{column}") for column in columns), rows)
