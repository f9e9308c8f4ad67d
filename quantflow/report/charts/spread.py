"""How KL is spread over tokens: which share of them diverges by more than a value."""

from dataclasses import dataclass

from quantflow.measure.measurement import Measurement
from quantflow.report.charts.marks import Chart, Dot, Key, Mark, Segment, series
from quantflow.report.charts.scale import logarithmic
from quantflow.report.figures import Table, nats, percent
from quantflow.report.model import Report
from quantflow.report.wording import Wording

WIDTH, HEIGHT = 520.0, 300.0
FRAME = (62.0, 14.0, 506.0, 250.0)
QUANTILES = (("median", 0.5), ("p90", 0.1), ("p95", 0.05), ("p99", 0.01), ("p999", 0.001))


@dataclass(frozen=True)
class _Curve:
    name: str
    style: str
    points: tuple[tuple[float, float], ...]


def spread_chart(report: Report, words: Wording) -> Chart | None:
    """Draw the quantiles of every artifact's KL; None where none has any above 0."""
    curves = _curves(report, words)
    values = [kl for curve in curves for kl, _ in curve.points]
    if not any(value > 0 for value in values):
        return None
    left, top, right, bottom = FRAME
    x = logarithmic(values, left, right)
    y = logarithmic([100 * share for curve in curves for _, share in curve.points], bottom, top)
    marks: list[Mark] = []
    for curve in curves:
        places = tuple((x(kl), y(100 * share)) for kl, share in curve.points)
        marks.append(Segment(places, f"curve {curve.style}"))
        for (kl, share), place in zip(curve.points, places, strict=True):
            said = words("divergence.point", name=curve.name, share=_share(share), kl=nats(kl))
            marks.append(Dot(*place, curve.style, said))
    columns = (words("divergence.y"), *(curve.name for curve in curves))
    shares = sorted({share for curve in curves for _, share in curve.points}, reverse=True)
    found = [{share: kl for kl, share in curve.points} for curve in curves]
    rows = tuple((_share(share), *(nats(kls.get(share)) for kls in found)) for share in shares)
    return Chart(
        title=words("divergence.plot"),
        note=words("divergence.plot_note"),
        x_label=words("divergence.x"),
        y_label=words("divergence.y"),
        width=WIDTH,
        height=HEIGHT,
        frame=FRAME,
        x_ticks=x.ticks(lambda value: f"{value:g}"),
        y_ticks=y.ticks(lambda value: f"{value:g}"),
        marks=tuple(marks),
        table=Table(words("divergence.plot"), columns, rows),
        keys=tuple(Key(curve.style, curve.name) for curve in curves),
    )


def _curves(report: Report, words: Wording) -> list[_Curve]:
    curves = []
    for index, artifact in enumerate(report.artifacts):
        curves.append((artifact.name, series(index), artifact.measurements))
        name = words("divergence.nearest", name=artifact.name)
        curves.append((name, f"hollow {series(index)}", artifact.yardstick))
    return [_Curve(name, style, _quantiles(m)) for name, style, m in curves if m is not None and m.kl]


def _quantiles(measurement: Measurement) -> tuple[tuple[float, float], ...]:
    kl, tokens = measurement.kl, measurement.perplexity.tokens
    if kl is None:
        return ()
    seen = [(getattr(kl, name), share) for name, share in QUANTILES if share * tokens >= 1]
    return (*seen, (kl.max, 1 / tokens))


def _share(share: float) -> str:
    return percent(share) if share >= 0.001 else f"{100 * share:.2g} %"
