"""The KL between histograms of a unit's outputs before and after quantization, as articles describe it.

It says how the distribution of values moved, not what that does to the model's predictions: outputs that
trade places leave the histogram as it was, and a change that all later layers ignore moves it.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantflow.sensitivity.measured import Key
from quantflow.sensitivity.text import ScanText

BINS = 256
"""Bins between the least and the largest value of the first batch; what later lies outside goes to the ends.
As many as 8 bits tell apart: finer ones would be emptied and filled by rounding alone."""

PRIOR = 0.5
"""Added to every bin's count (Jeffreys), so that a bin that quantization emptied is not infinitely far."""


class OutputHistograms:
    """Counts of outputs, before and after, of every unit in every precision, on each half of the text.

    Args:
        text: The text.
    """

    def __init__(self, text: ScanText) -> None:
        self._text = text
        self._ranges: dict[tuple[Key, str], tuple[float, float]] = {}
        self._counts: dict[Key, dict[str, NDArray[np.float64]]] = {}

    def add(self, key: Key, linear: str, number: int, y: Tensor, delta: Tensor) -> None:
        """Count the outputs of one linear of a unit.

        Args:
            key: Unit and precision.
            linear: The linear, within its block.
            number: The batch.
            y: Its outputs in the lossless model, `[B, T, out]`.
            delta: By how much they change.
        """
        batch = self._text.batches[number]
        rows = zip(self._text.window_of_row(batch), y, delta, batch.lengths, strict=True)
        whole = float(y.min()), float(y.max())
        for window, before, change, length in rows:
            self._count(key, linear, self._in_second_half(window), before[:length], change[:length], whole)

    def add_rows(self, key: Key, linear: str, windows: NDArray[np.int64], y: Tensor, delta: Tensor) -> None:
        """Count outputs at positions of any windows.

        Args:
            key: Unit and precision.
            linear: The linear.
            windows: Window of every position, [positions].
            y: Its outputs in the lossless model, `[positions, out]`.
            delta: By how much they change.
        """
        whole = float(y.min()), float(y.max())
        second = torch.from_numpy(np.asarray(self._in_second_half(windows))).to(y.device)
        for half, of_half in ((False, ~second), (True, second)):
            self._count(key, linear, half, y[of_half], delta[of_half], whole)

    def _in_second_half(self, windows: Any) -> Any:
        return windows >= len(self._text.windows) // 2

    def _count(
        self, key: Key, linear: str, second: bool, y: Tensor, delta: Tensor, seen: tuple[float, float]
    ) -> None:
        low, high = self._ranges.setdefault((key, linear), seen)
        counts = self._counts.setdefault(key, {}).setdefault(linear, np.zeros((2, 2, BINS)))
        for after, values in enumerate((y, y + delta)):
            held = values.float().clamp(low, high)
            counts[int(second), after] += torch.histc(held, BINS, low, high).cpu().numpy()

    def kl(self, key: Key) -> tuple[float, float, float]:
        """KL(before ‖ after) of a unit, the mean of its linears, nats: of all text and of each half."""
        linears = self._counts[key].values()
        whole = float(np.mean([_divergence(counts.sum(0)) for counts in linears]))
        first, second = (float(np.mean([_divergence(counts[half]) for counts in linears])) for half in (0, 1))
        return whole, first, second


def _divergence(counts: NDArray[np.float64]) -> float:
    """KL of the second histogram from the first, [2, bins], nats."""
    before, after = (counts + PRIOR) / (counts + PRIOR).sum(-1, keepdims=True)
    return float((before * np.log(before / after)).sum())
