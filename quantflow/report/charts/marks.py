"""What a drawing is made of."""

from dataclasses import dataclass, field
from typing import ClassVar

from quantflow.report.figures import Table

SERIES = 6
"""Colours that series have; a seventh begins again, and is told apart by its label."""


@dataclass(frozen=True)
class Dot:
    """A point of a series.

    Attributes:
        x: Its middle.
        y: Its middle.
        style: CSS classes.
        tip: What it says, shown as a tooltip.
    """

    shape: ClassVar[str] = "dot"
    x: float
    y: float
    style: str
    tip: str


@dataclass(frozen=True)
class Bar:
    """A rectangle that stands for a value.

    Attributes:
        x: Left edge.
        y: Upper edge.
        width: To the right.
        height: Downwards.
        style: CSS classes.
        tip: What it says; empty where there is nothing to say.
    """

    shape: ClassVar[str] = "bar"
    x: float
    y: float
    width: float
    height: float
    style: str
    tip: str = ""


@dataclass(frozen=True)
class Segment:
    """A line between points, such as an interval, a limit or a curve."""

    shape: ClassVar[str] = "segment"
    points: tuple[tuple[float, float], ...]
    style: str

    @property
    def path(self) -> str:
        """The points as SVG writes them."""
        return " ".join(f"{x:g},{y:g}" for x, y in self.points)


@dataclass(frozen=True)
class Label:
    """A short text in the drawing.

    Attributes:
        x: Where its anchor is.
        y: Its base line.
        text: What it says.
        anchor: SVG's `text-anchor`.
        style: CSS classes.
    """

    shape: ClassVar[str] = "label"
    x: float
    y: float
    text: str
    anchor: str = "start"
    style: str = ""


Mark = Dot | Bar | Segment | Label


@dataclass(frozen=True)
class Tick:
    """A place on an axis.

    Attributes:
        at: Its position.
        text: What is written there.
    """

    at: float
    text: str


@dataclass(frozen=True)
class Key:
    """A line of the legend.

    Attributes:
        style: CSS classes of its sample, as in the drawing.
        text: What it stands for.
    """

    style: str
    text: str


@dataclass(frozen=True)
class Chart:
    """A drawing with title, axes, legend and the table of what it shows.

    Attributes:
        title: What is drawn.
        note: How to read it.
        x_label: The horizontal axis in words, with its unit.
        y_label: The vertical axis in words, with its unit; empty where rows are named instead.
        width: Of the view box.
        height: Of the view box.
        frame: Left, upper, right and lower edge of the area within the axes.
        x_ticks: Along the lower edge.
        y_ticks: Along the left edge.
        marks: Drawn in this order.
        keys: The legend; empty where the labels say it.
        table: Every figure that is drawn.
    """

    title: str
    note: str
    x_label: str
    y_label: str
    width: float
    height: float
    frame: tuple[float, float, float, float]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    table: Table
    keys: tuple[Key, ...] = field(default=())


def series(index: int) -> str:
    """CSS class of a series' colour."""
    return f"series-{index % SERIES + 1}"
