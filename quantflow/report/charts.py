"""Geometry of the report's drawings, in the units of each drawing's own view box."""

from collections.abc import Sequence
from dataclasses import dataclass

from quantflow.data.documents import SplitAccounting
from quantflow.gate.criteria import CriterionResult
from quantflow.report.figures import count, margin, size
from quantflow.report.measures import BYTES, MORE_IS_BETTER, RELATIVE, show_change

WIDTH = 320.0
_PADDING = 14.0  # keeps end caps and the point inside the drawing
_BEYOND = 0.1  # of what is shown, added to the right, so that the margin is seen to have an outside
_LABEL_ROOM = 60.0  # width of the margin's label; nearer to an edge it is aligned to the other side


@dataclass(frozen=True)
class IntervalChart:
    """A change and its interval against a margin, left to right from better to worse.

    Attributes:
        width: Width of the view box; what follows are positions on it.
        zero: Where no change would be.
        margin: Where the margin is; all to its left is allowed.
        margin_anchor: SVG's `text-anchor` for the margin's label.
        show_zero: Whether the label of zero has room beside that of the margin.
        point: The measured change.
        low: Lower end of the interval; None where there is no interval.
        high: Upper end of the interval.
        margin_label: The margin in figures.
        description: The drawing in words.
    """

    width: float
    zero: float
    margin: float
    margin_anchor: str
    show_zero: bool
    point: float
    low: float | None
    high: float | None
    margin_label: str
    description: str


def show_margin(criterion: CriterionResult) -> str:
    """A criterion's margin, with as many digits as it was given with."""
    if criterion.metric in BYTES and criterion.metric not in RELATIVE:
        return size(round(criterion.margin))
    return margin(criterion.margin, relative=criterion.metric in RELATIVE)


def interval_chart(criterion: CriterionResult) -> IntervalChart | None:
    """Lay out a criterion's change, interval and margin; None where nothing was measured."""
    delta, low, high = criterion.delta, criterion.ci_low, criterion.ci_high
    if delta is None:
        return None
    shown = [0.0, delta, criterion.margin, *(end for end in (low, high) if end is not None)]
    sign = -1.0 if criterion.metric in MORE_IS_BETTER else 1.0
    left, right = min(sign * value for value in shown), max(sign * value for value in shown)
    scale = (WIDTH - 2 * _PADDING) / ((1 + _BEYOND) * (right - left) or 1.0)

    def x(value: float) -> float:
        return round(_PADDING + (sign * value - left) * scale, 2)

    words = f"change {show_change(criterion, delta)}"
    if low is not None and high is not None:
        words += f", 90 % interval {show_change(criterion, low)} to {show_change(criterion, high)}"
    at_margin = x(criterion.margin)
    anchor = "start" if at_margin < _LABEL_ROOM else "end" if at_margin > WIDTH - _LABEL_ROOM else "middle"
    return IntervalChart(
        width=WIDTH,
        zero=x(0.0),
        margin=at_margin,
        margin_anchor=anchor,
        show_zero=at_margin - x(0.0) > 2 * _LABEL_ROOM,
        point=x(delta),
        low=None if low is None else x(low),
        high=None if high is None else x(high),
        margin_label=show_margin(criterion),
        description=f"{words}, margin {show_margin(criterion)}",
    )


@dataclass(frozen=True)
class Segment:
    """A piece of a bar that is 100 wide.

    Attributes:
        kind: Names its colour.
        start: Where it begins.
        width: How wide it is.
        label: It in words.
    """

    kind: str
    start: float
    width: float
    label: str


TOKEN_FATES = (
    ("used", "in windows"),
    ("undrawn", "in whole windows beyond those asked for"),
    ("incomplete", "left after the last whole window"),
    ("too_short", "in windows too short to score"),
    ("duplicate", "in copies of other documents"),
)


def token_bar(split: SplitAccounting) -> list[Segment]:
    """What became of a split's tokens, as one bar."""
    total = split.total.tokens_read
    fates = [(kind, words, getattr(split.total, f"tokens_{kind}")) for kind, words in TOKEN_FATES]
    return _stack([(kind, tokens, f"{count(tokens)} tokens {words}") for kind, words, tokens in fates], total)


def _stack(parts: Sequence[tuple[str, int, str]], total: int) -> list[Segment]:
    segments: list[Segment] = []
    start = 0.0
    for kind, amount, label in parts:
        if amount > 0:
            width = round(100 * amount / total, 3)
            segments.append(Segment(kind, round(start, 3), width, label))
            start += width
    return segments
