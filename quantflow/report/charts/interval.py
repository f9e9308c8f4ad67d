"""A criterion's interval drawn against its margin."""

from dataclasses import dataclass

from quantflow.gate.result import CriterionResult
from quantflow.report.measures import MORE_IS_BETTER, Scale, scale_of, show_change, show_margin
from quantflow.report.wording import Wording

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


def interval_chart(criterion: CriterionResult, words: Wording) -> IntervalChart | None:
    """Lay out a criterion's change, interval and margin; None where there is nothing to draw."""
    delta, low, high = criterion.delta, criterion.ci_low, criterion.ci_high
    if delta is None or scale_of(criterion) in (Scale.COUNT, Scale.LEVEL):
        return None
    shown = [0.0, delta, criterion.margin, *(end for end in (low, high) if end is not None)]
    sign = -1.0 if criterion.metric in MORE_IS_BETTER else 1.0
    left, right = min(sign * value for value in shown), max(sign * value for value in shown)
    scale = (WIDTH - 2 * _PADDING) / ((1 + _BEYOND) * (right - left) or 1.0)

    def x(value: float) -> float:
        return round(_PADDING + (sign * value - left) * scale, 2)

    said = words("criteria.words", delta=show_change(criterion, delta))
    if low is not None and high is not None:
        ends = {"low": show_change(criterion, low), "high": show_change(criterion, high)}
        said += words("criteria.words_interval", **ends)
    said += words("criteria.words_margin", margin=show_margin(criterion))
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
        description=said,
    )
