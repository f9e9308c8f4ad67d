"""Mean KL of every part of the data, one row each."""

from quantflow.report.charts.marks import Bar, Chart, Key, Mark, Segment, Tick, series
from quantflow.report.charts.scale import linear
from quantflow.report.figures import Table, nats
from quantflow.report.model import ArtifactReport, Report
from quantflow.report.wording import Wording

WIDTH = 520.0
_ROW, _BAR, _TOP, _FOOT = 10.0, 13.0, 6.0, 46.0
_LEFT, _RIGHT = 150.0, 506.0
# Beyond this the drawing is no overview any more; the table has all of them.
MOST_ROWS = 24
_NAME_LENGTH = 20  # letters that have room left of the bars


def slice_chart(report: Report, words: Wording) -> Chart | None:
    """Draw the slices that diverge most; None where there are fewer than two."""
    artifacts = [a for a in report.artifacts if a.measurements is not None and a.measurements.kl is not None]
    kls = {name: [_kl(artifact, name) for artifact in artifacts] for name in _names(artifacts)}
    if len(kls) < 2:
        return None
    worst = sorted(kls, key=lambda name: -max(kl or 0.0 for kl in kls[name]))[:MOST_ROWS]
    row = _ROW + _BAR * len(artifacts)
    bottom = _TOP + row * len(worst)
    wholes = [a.measurements.kl.mean for a in artifacts if a.measurements and a.measurements.kl]
    x = linear([*wholes, *(kl for name in worst for kl in kls[name] if kl is not None)], _LEFT, _RIGHT)
    marks: list[Mark] = []
    for number, name in enumerate(worst):
        for index, (artifact, kl) in enumerate(zip(artifacts, kls[name], strict=True)):
            if kl is not None:
                said = words("slices.bar", artifact=artifact.name, slice=name, kl=nats(kl))
                y = _TOP + row * number + _ROW / 2 + _BAR * index
                marks.append(Bar(_LEFT, y, round(x(kl) - _LEFT, 2), _BAR - 2, series(index), said))
    for index, whole in enumerate(wholes):
        marks.append(Segment(((x(whole), _TOP), (x(whole), bottom)), f"whole {series(index)}"))
    ticks = tuple(
        Tick(_TOP + row * (number + 0.5), name if len(name) <= _NAME_LENGTH else f"{name[:_NAME_LENGTH]}…")
        for number, name in enumerate(worst)
    )
    return Chart(
        title=words("slices.plot"),
        note="",
        x_label=words("slices.x"),
        y_label="",
        width=WIDTH,
        height=bottom + _FOOT,
        frame=(_LEFT, _TOP, _RIGHT, bottom),
        x_ticks=x.ticks(lambda value: f"{value:.4g}"),
        y_ticks=ticks,
        marks=tuple(marks),
        table=Table(
            words("slices.plot"),
            (words("slices.slice"), *(artifact.name for artifact in artifacts)),
            tuple((name, *(nats(kl) for kl in kls[name])) for name in worst),
        ),
        keys=(
            *(Key(series(index), artifact.name) for index, artifact in enumerate(artifacts)),
            Key("whole", words("slices.whole")),
        ),
    )


def _names(artifacts: list[ArtifactReport]) -> list[str]:
    return sorted({name for a in artifacts if a.measurements for name in a.measurements.slices})


def _kl(artifact: ArtifactReport, name: str) -> float | None:
    found = artifact.measurements.slices.get(name) if artifact.measurements else None
    return found.kl_mean if found else None
