"""KL against size: what sparing one unit after the other comes to, and where the artifact is on that way."""

from quantflow.report.charts.marks import Chart, Dot, Key, Mark, Segment, series
from quantflow.report.charts.scale import Scale, linear
from quantflow.report.figures import Table, byte_scale, count, nats, percent, size
from quantflow.report.wording import Wording
from quantflow.sensitivity.assignment import AssignmentRecord, FrontierPoint

WIDTH, HEIGHT = 520.0, 300.0
FRAME = (62.0, 14.0, 506.0, 250.0)


def frontier_chart(assignment: AssignmentRecord, words: Wording) -> Chart | None:
    """Draw the frontier of an assignment; None where it has one point only."""
    points = assignment.frontier
    if len(points) < 2:
        return None
    left, top, right, bottom = FRAME
    divisor, unit = byte_scale(max(point.bytes for point in points))
    # Zero would leave a few per cent of the width to the whole of the way.
    sizes = [point.bytes / divisor for point in points]
    first, last = min(sizes), max(sizes)
    x = Scale(first, last if last > first else first + 1, left, right)
    chosen = min(points, key=lambda point: abs(point.spared - assignment.mix.spared))
    measured = ((points[0], assignment.plain.kl), (chosen, assignment.mix.kl))
    y = linear([*(point.kl for point in points), *(kl for _, kl in measured)], bottom, top)
    places = [(x(point.bytes / divisor), y(point.kl)) for point in points]
    marks: list[Mark] = [Segment(tuple(places), f"curve {series(0)}")]
    marks += [
        Dot(*place, f"minor {series(0)}", _said(point, words))
        for point, place in zip(points, places, strict=True)
    ]
    marks.append(
        Dot(x(chosen.bytes / divisor), y(chosen.kl), f"large {series(1)}", _chosen_said(chosen, words))
    )
    for point, kl in measured:
        said = words("frontier.measured", units=count(point.units), kl=nats(kl))
        marks.append(Dot(x(point.bytes / divisor), y(kl), f"hollow {series(2)}", said))
    return Chart(
        title=words("frontier.plot"),
        note=words("frontier.plot_note"),
        x_label=words("frontier.x", unit=unit),
        y_label=words("frontier.y"),
        width=WIDTH,
        height=HEIGHT,
        frame=FRAME,
        x_ticks=x.ticks(lambda value: f"{value:.4g}"),
        y_ticks=y.ticks(lambda value: f"{value:.4g}"),
        marks=tuple(marks),
        table=_table(points, words),
        keys=(
            Key(series(0), words("frontier.points")),
            Key(series(1), words("frontier.chosen")),
            Key(f"hollow {series(2)}", words("frontier.measured_key")),
        ),
    )


def _said(point: FrontierPoint, words: Wording) -> str:
    figures = {"size": size(point.bytes), "kl": nats(point.kl)}
    if not point.unit:
        return words("frontier.none", **figures)
    return words("frontier.point", unit=point.unit, units=count(point.units), **figures)


def _chosen_said(point: FrontierPoint, words: Wording) -> str:
    return f"{words('frontier.chosen')}{words('list.colon')}{_said(point, words)}"


def _table(points: tuple[FrontierPoint, ...], words: Wording) -> Table:
    columns = ("units", "unit", "precision", "share", "size", "kl")
    rows = tuple(
        (
            count(point.units),
            point.unit or "–",
            point.precision or "–",
            percent(point.spared),
            size(point.bytes),
            nats(point.kl),
        )
        for point in points
    )
    return Table(words("frontier.plot"), tuple(words(f"frontier.{column}") for column in columns), rows)
