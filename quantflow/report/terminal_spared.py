"""Which units were spared and why, on the terminal: one table for all artifacts, a line for each below it."""

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from quantflow.report.figures import size
from quantflow.report.model import ArtifactReport, Report
from quantflow.report.terminal import WIDEST
from quantflow.sensitivity.assignment import AssignmentRecord, Decision

MOST_ROWS = 12
"""Of an artifact: as many as are read at a glance; all are in report.json."""


def spared_view(report: Report, width: int) -> RenderableType | None:
    """Units of all artifacts that were spared, those that cost most first; None where none were to be chosen.

    Args:
        report: A run's report.
        width: Columns of the terminal; where the table does not fit, each unit is a line.
    """
    assigned = [artifact for artifact in report.artifacts if artifact.assignment is not None]
    if not assigned:
        return None
    lines = [
        Text(f" {_line(artifact.name, artifact.assignment)}") for artifact in assigned if artifact.assignment
    ]
    rows = [(artifact, decision) for artifact in assigned for decision in _shown(artifact)]
    if not rows:
        return Group(*lines, "")
    table = _table(rows)
    if Console(width=WIDEST).measure(table).maximum <= width:
        return Group(table, *lines, "")
    return Group(*(Text(f" {_row_line(*row)}") for row in rows), *lines, "")


def _shown(artifact: ArtifactReport) -> Sequence[Decision]:
    spared = artifact.assignment.spared if artifact.assignment else ()
    return sorted(spared, key=lambda decision: -(decision.kl_quantized or 0.0))[:MOST_ROWS]


def _table(rows: Sequence[tuple[ArtifactReport, Decision]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=None)
    for heading in ("", "spared", "as"):
        table.add_column(heading, no_wrap=True)
    for heading in ("KL quantized", "KL now", "costs"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("why", no_wrap=True)
    for artifact, decision in rows:
        table.add_row(
            escape(artifact.name),
            escape(decision.unit),
            escape(decision.precision),
            _kl(decision.kl_quantized),
            _kl(decision.kl),
            size(decision.bytes - decision.bytes_quantized),
            escape(_short(decision)),
        )
    return table


def _row_line(artifact: ArtifactReport, decision: Decision) -> str:
    return (
        f"{artifact.name}: {decision.unit} as {decision.precision}, "
        f"{size(decision.bytes - decision.bytes_quantized)} more. {decision.reason}"
    )


def _short(decision: Decision) -> str:
    """The reason without the figure that has a column of its own: `rank 1 of 120; …`."""
    _, _, rest = decision.reason.partition(" is ")
    if decision.reason.startswith("Spared in"):
        return decision.reason.partition(":")[0]
    return rest.rstrip(".") or decision.reason


def _line(name: str, record: AssignmentRecord) -> str:
    """What the assignment came to, in one line."""
    mix, plain = record.mix, record.plain
    if not record.spared:
        what = f"{name}: nothing is spared; KL on the selection documents is {_kl(mix.kl)}"
        if record.remedied:
            what += f", {_kl(plain.kl)} without remedies"
    else:
        what = (
            f"{name}: {len(record.spared)} of {len(record.decisions)} units spared ({100 * mix.spared:.1f} % "
            f"of the weights, {size(mix.bytes - plain.bytes)} more); KL on the selection documents "
            f"{_kl(plain.kl)} → {_kl(mix.kl)}"
        )
    if mix.additivity_ratio is not None:
        what += f", {mix.additivity_ratio:.2f} × the sum of its parts"
    if record.next is not None:
        what += (
            f"; next would be {record.next.unit}, which takes away {_kl(record.next.kl)} for "
            f"{size(record.next.bytes)}"
        )
    if len(record.spared) > MOST_ROWS:
        what += f"; {len(record.spared) - MOST_ROWS} spared units more are in report.json"
    return f"{what}."


def _kl(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
