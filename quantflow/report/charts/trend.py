"""Mean KL of every artifact over the last runs of the recipe."""

from quantflow.report.charts.marks import Chart, Dot, Key, Mark, Segment, Tick, series
from quantflow.report.charts.scale import linear
from quantflow.report.figures import Table, nats, signed_percent
from quantflow.report.model import Report, TrendPoint
from quantflow.report.wording import Wording

WIDTH, HEIGHT = 520.0, 220.0
FRAME = (62.0, 14.0, 506.0, 170.0)


def trend_chart(report: Report, words: Wording) -> Chart | None:
    """Draw the earlier runs that the report knows; None where there are fewer than two with a KL."""
    known = [point for point in report.trend if point.kl_mean is not None]
    runs = list(dict.fromkeys(point.run_id for point in known))
    if len(runs) < 2:
        return None
    left, top, right, bottom = FRAME
    y = linear([point.kl_mean or 0.0 for point in known], bottom, top)
    step = (right - left - 20) / (len(runs) - 1)
    at = {run: round(left + 10 + step * index, 2) for index, run in enumerate(runs)}
    names = list(dict.fromkeys(point.artifact for point in known))
    marks: list[Mark] = []
    for index, name in enumerate(names):
        own = [point for point in known if point.artifact == name]
        places = tuple((at[point.run_id], y(point.kl_mean or 0.0)) for point in own)
        marks.append(Segment(places, f"curve {series(index)}"))
        for point, place in zip(own, places, strict=True):
            # A ring is no pass: the line alone would say that all is well.
            style = series(index) if point.verdict == "pass" else f"hollow {series(index)}"
            marks.append(Dot(*place, style, _said(point, words)))
    return Chart(
        title=words("trend.plot"),
        note=words("trend.plot_note"),
        x_label=words("trend.x"),
        y_label=words("trend.y"),
        width=WIDTH,
        height=HEIGHT,
        frame=FRAME,
        x_ticks=(Tick(at[runs[0]], _day(known[0])), Tick(at[runs[-1]], _day(known[-1]))),
        y_ticks=y.ticks(lambda value: f"{value:.4g}"),
        marks=tuple(marks),
        table=Table(
            words("trend.plot"),
            tuple(words(f"trend.{column}") for column in ("run", "artifact", "kl", "perplexity", "verdict")),
            tuple(_row(point, words) for point in report.trend),
        ),
        keys=tuple(Key(series(index), name) for index, name in enumerate(names)),
    )


def _day(point: TrendPoint) -> str:
    return point.started[:10]


def _said(point: TrendPoint, words: Wording) -> str:
    return words(
        "trend.point",
        run=point.run_id,
        artifact=point.artifact,
        kl=nats(point.kl_mean),
        verdict=words(f"verdict.{point.verdict}"),
    )


def _row(point: TrendPoint, words: Wording) -> tuple[str, ...]:
    return (
        point.run_id,
        point.artifact,
        nats(point.kl_mean),
        signed_percent(point.perplexity_increase),
        words(f"verdict.{point.verdict}"),
    )
