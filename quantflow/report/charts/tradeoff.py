"""What an artifact saves against what it loses: size of files and mean KL."""

from collections.abc import Sequence
from dataclasses import dataclass

from quantflow.report.charts.marks import Chart, Dot, Key, Label, Mark, Segment, series
from quantflow.report.charts.scale import Scale, linear
from quantflow.report.figures import Table, byte_scale, margin, nats, size
from quantflow.report.model import Report
from quantflow.report.wording import Wording

WIDTH, HEIGHT = 520.0, 300.0
FRAME = (62.0, 14.0, 506.0, 250.0)
_LINE_HEIGHT = 14.0  # labels nearer than this to one another cannot be read
_LABEL_GAP = 10.0


@dataclass(frozen=True)
class _Point:
    name: str
    bytes: int
    kl: float
    style: str
    low: float | None = None
    high: float | None = None

    def said(self, words: Wording) -> str:
        figures = {"name": self.name, "size": size(self.bytes), "kl": nats(self.kl)}
        if self.low is None or self.high is None:
            return words("cost.point", **figures)
        return words("cost.point_interval", **figures, low=nats(self.low), high=nats(self.high))


def tradeoff_chart(report: Report, words: Wording) -> Chart | None:
    """Draw size against mean KL; None where no artifact has both."""
    points = _points(report, words)
    if len(points) < 2 or report.baseline is None:
        return None
    limits = sorted({c.margin for c in report.criteria if c.metric == "kl_mean" and c.slice == "all"})
    left, top, right, bottom = FRAME
    divisor, unit = byte_scale(max(point.bytes for point in points))
    x = linear([point.bytes / divisor for point in points], left, right)
    y = linear([*(point.high or point.kl for point in points), *limits], bottom, top)
    marks: list[Mark] = []
    for limit in limits:
        marks.append(Segment(((left, y(limit)), (right, y(limit))), "limit"))
        text = words("cost.margin", margin=margin(limit, relative=False))
        marks.append(Label(right, y(limit) - 5, text, "end", "small"))
    for point in points:
        marks += _drawn(point, x(point.bytes / divisor), y, words)
    marks += _labels([(x(point.bytes / divisor), y(point.kl), point.name) for point in points])
    rows = tuple(_row(point) for point in points)
    columns = ("model", "size", "kl", "interval")
    names = tuple(words("criteria.interval" if c == "interval" else f"cost.{c}") for c in columns)
    return Chart(
        title=words("cost.plot"),
        note=words("cost.plot_note"),
        x_label=words("cost.x", unit=unit),
        y_label=words("cost.y"),
        width=WIDTH,
        height=HEIGHT,
        frame=FRAME,
        x_ticks=x.ticks(lambda value: f"{value:g}"),
        y_ticks=y.ticks(lambda value: f"{value:.4g}"),
        marks=tuple(marks),
        table=Table(words("cost.plot"), names, rows),
        keys=_keys(points, words),
    )


def _points(report: Report, words: Wording) -> list[_Point]:
    if report.baseline is None:
        return []
    points = [_Point(words("cost.baseline"), report.baseline.bytes, 0.0, "baseline")]
    judged = {c.artifact: c for c in report.criteria if c.metric == "kl_mean" and c.slice == "all"}
    for index, artifact in enumerate(report.artifacts):
        if artifact.bytes is None or artifact.measurements is None or artifact.measurements.kl is None:
            continue
        found = judged.get(artifact.name)
        ends = (found.ci_low, found.ci_high) if found else (None, None)
        mean = artifact.measurements.kl.mean
        points.append(_Point(artifact.name, artifact.bytes, mean, series(index), *ends))
        if artifact.yardstick is not None and artifact.yardstick.kl is not None:
            name = words("cost.nearest", name=artifact.name)
            points.append(_Point(name, artifact.bytes, artifact.yardstick.kl.mean, f"hollow {series(index)}"))
    return points


def _drawn(point: _Point, x: float, y: Scale, words: Wording) -> list[Mark]:
    marks: list[Mark] = []
    if point.low is not None and point.high is not None:
        marks.append(Segment(((x, y(point.low)), (x, y(point.high))), f"whisker {point.style}"))
    marks.append(Dot(x, y(point.kl), point.style, point.said(words)))
    return marks


def _labels(places: Sequence[tuple[float, float, str]]) -> list[Mark]:
    """Names beside their points, pushed apart where they would cover one another."""
    labels: list[Mark] = []
    lowest = FRAME[3] + _LINE_HEIGHT
    for x, y, name in sorted(places, key=lambda place: -place[1]):
        at = min(y + 4, lowest - _LINE_HEIGHT)
        lowest = at
        left = x > (FRAME[0] + FRAME[2]) / 2
        labels.append(Label(x + (-_LABEL_GAP if left else _LABEL_GAP), at, name, "end" if left else "start"))
    return labels


def _keys(points: Sequence[_Point], words: Wording) -> tuple[Key, ...]:
    keys = [Key("baseline", words("cost.series_baseline")), Key(series(0), words("cost.series_artifact"))]
    if any("hollow" in point.style for point in points):
        keys.append(Key(f"hollow {series(0)}", words("cost.series_yardstick")))
    return tuple(keys)


def _row(point: _Point) -> tuple[str, ...]:
    interval = "–" if point.low is None or point.high is None else f"{nats(point.low)} … {nats(point.high)}"
    return (point.name, size(point.bytes), nats(point.kl), interval)
