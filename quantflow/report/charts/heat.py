"""What each unit costs when it alone is quantized, as a map of blocks and kinds of units."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from quantflow.report.charts.marks import Bar, Chart, Key, Label, Mark, Tick
from quantflow.report.figures import Table, nats, size
from quantflow.report.wording import Wording
from quantflow.sensitivity.assignment import AssignmentRecord, Decision
from quantflow.sensitivity.record import ScanRecord, UnitScore

STEPS = 7
"""Colours of the map; more could not be told apart."""
_UNIT = re.compile(r"\.(\d+)\.([^.]+)$")
_ROW = 30.0
_LEFT, _TOP, _FOOT = 74.0, 6.0, 44.0
# Wide enough for a cell to be seen and pointed at in models of 200 blocks, and no wider than the page.
_WIDEST, _CELL = 1000.0, 28.0
_BLOCK_TICKS = 20


@dataclass(frozen=True)
class _Cell:
    block: int
    kind: str
    score: UnitScore
    decision: Decision | None

    @property
    def spared(self) -> bool:
        return self.decision is not None and self.decision.spared


def heat_chart(
    scan: ScanRecord, precision: str, assignment: AssignmentRecord | None, words: Wording
) -> Chart | None:
    """Draw the scores of one precision; None where it has none.

    Args:
        scan: A scan.
        precision: Id of the scheme to show.
        assignment: What was decided, to mark what is spared; None where nothing was.
        words: The language.
    """
    decided = {decision.unit: decision for decision in assignment.decisions} if assignment else {}
    cells = [_cell(score, decided.get(score.unit)) for score in scan.of(precision)]
    if not cells:
        return None
    kinds = list(dict.fromkeys(cell.kind for cell in cells))
    blocks = max(cell.block for cell in cells) + 1
    width = min(_CELL, _WIDEST / blocks)
    bottom, right = _TOP + _ROW * len(kinds), _LEFT + width * blocks
    steps = _Steps([cell.score.kl for cell in cells])
    marks: list[Mark] = []
    for cell in cells:
        x, y = round(_LEFT + width * cell.block, 2), _TOP + _ROW * kinds.index(cell.kind)
        style = f"heat heat-{steps(cell.score.kl)}"
        marks.append(Bar(x, y, round(width, 2), _ROW, style, _said(cell, words)))
        if cell.spared:
            marks.append(Label(round(x + width / 2, 2), y + _ROW / 2 + 4, "×", "middle", "spared"))
    every = math.ceil(blocks / _BLOCK_TICKS)
    return Chart(
        title=words("sensitivity.plot", precision=precision),
        note=words("sensitivity.plot_note"),
        x_label=words("sensitivity.x"),
        y_label="",
        width=max(right + 12, 520.0),
        height=bottom + _FOOT,
        frame=(_LEFT, _TOP, right, bottom),
        x_ticks=tuple(Tick(_LEFT + width * (block + 0.5), str(block)) for block in range(0, blocks, every)),
        y_ticks=tuple(Tick(_TOP + _ROW * (row + 0.5), kind) for row, kind in enumerate(kinds)),
        marks=tuple(marks),
        table=_table(cells, precision, words),
        keys=_keys(cells, steps, words),
    )


def _cell(score: UnitScore, decision: Decision | None) -> _Cell:
    found = _UNIT.search(score.unit)
    if found is None:  # the head, which belongs to no block, is the first of a row of its own
        return _Cell(0, score.unit, score, decision)
    return _Cell(int(found[1]), found[2], score, decision)


class _Steps:
    """From a KL to its colour: equal ratios of KL are equal steps, over four decades at most."""

    def __init__(self, kls: Sequence[float]) -> None:
        positive = [kl for kl in kls if kl > 0] or [1.0]
        self.high = max(positive)
        self.low = max(min(positive), 1e-4 * self.high)

    def __call__(self, kl: float) -> int:
        if kl <= self.low or self.high == self.low:
            return 0
        share = math.log(kl / self.low) / math.log(self.high / self.low)
        return min(int(share * STEPS), STEPS - 1)

    def start(self, step: int) -> float:
        """The smallest KL of a step."""
        return float(self.low * (self.high / self.low) ** (step / STEPS))


def _said(cell: _Cell, words: Wording) -> str:
    score = cell.score
    said = words("sensitivity.cell", unit=score.unit, kl=nats(score.kl))
    if score.ci_low is not None and score.ci_high is not None:
        said += words("sensitivity.cell_interval", low=nats(score.ci_low), high=nats(score.ci_high))
    if cell.decision is not None and cell.spared:
        said += words("sensitivity.cell_spared", precision=cell.decision.precision)
    return said


def _keys(cells: Sequence[_Cell], steps: _Steps, words: Wording) -> tuple[Key, ...]:
    keys = [
        Key(f"square heat-{step}", words("sensitivity.from", kl=nats(steps.start(step))))
        for step in range(STEPS)
    ]
    if any(cell.spared for cell in cells):
        keys.append(Key("cross", words("sensitivity.spared_key")))
    return tuple(keys)


def _table(cells: Sequence[_Cell], precision: str, words: Wording) -> Table:
    columns = ("unit", "kl", "interval", "method", "decided", "bytes")
    rows = tuple(
        (
            cell.score.unit,
            nats(cell.score.kl),
            f"{nats(cell.score.ci_low)} … {nats(cell.score.ci_high)}",
            cell.score.method,
            cell.decision.precision if cell.decision else precision,
            size(cell.decision.bytes if cell.decision else cell.score.bytes_quantized),
        )
        for cell in cells
    )
    title = words("sensitivity.plot", precision=precision)
    return Table(title, tuple(words(f"sensitivity.{column}") for column in columns), rows)
