"""From values to positions, and which round values to write on an axis."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quantflow.report.charts.marks import Tick

_WANTED_TICKS = 5
_ROUND = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic axis.

    Attributes:
        low: Value at `start`.
        high: Value at `end`; greater than `low`.
        start: Position.
        end: Position.
        log: Whether equal ratios are equal lengths; `low` is then above 0.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The position of a value, within the axis."""
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, max(value, self.low)))
        share = min((at - low) / (high - low), 1.0)
        return round(self.start + share * (self.end - self.start), 2)

    def ticks(self, show: Callable[[float], str]) -> tuple[Tick, ...]:
        """Round values along the axis.

        Args:
            show: Writes a value.
        """
        values = _decades(self.low, self.high) if self.log else _even(self.low, self.high)
        return tuple(Tick(self(value), show(value)) for value in values)


def linear(values: Sequence[float], start: float, end: float) -> Scale:
    """An axis from zero to a round value that holds all values, with a little room."""
    largest = max([*values, 0.0]) or 1.0
    step = _step(largest)
    return Scale(0.0, step * math.ceil(largest / step - 1e-9), start, end)


def logarithmic(values: Sequence[float], start: float, end: float) -> Scale:
    """An axis over whole decades that holds all values; values that are not above 0 lie at its beginning."""
    positive = [value for value in values if value > 0] or [1.0]
    low = 10.0 ** math.floor(math.log10(min(positive)))
    high = 10.0 ** math.ceil(math.log10(max(positive)))
    return Scale(low, high if high > low else 10 * low, start, end, log=True)


def _step(largest: float) -> float:
    rough = largest / _WANTED_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in _ROUND if factor * power >= rough * (1 - 1e-9))


def _even(low: float, high: float) -> list[float]:
    step = _step(high - low)
    return [low + index * step for index in range(round((high - low) / step) + 1)]


def _decades(low: float, high: float) -> list[float]:
    first, last = round(math.log10(low)), round(math.log10(high))
    every = max(1, math.ceil((last - first) / (2 * _WANTED_TICKS)))
    return [10.0**power for power in range(first, last + 1, every)]
