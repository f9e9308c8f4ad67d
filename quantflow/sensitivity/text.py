"""The text of a scan: a part of the calibration or selection windows, side by side in batches."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quantflow.data.windows import Windows, make_windows
from quantflow.gate.statistics import ratio_estimate
from quantflow.measure.batches import Batch, make_batches
from quantflow.sensitivity.sizes import LEAST_WINDOWS, SCAN_LENGTH


@dataclass(frozen=True)
class ScanText:
    """Windows to scan on.

    Attributes:
        windows: The windows.
        batches: The same, side by side.
        cluster: What each window's tokens belong together by: its document or, where it is packed from
            several, the window itself, [windows].
    """

    windows: Windows
    batches: tuple[Batch, ...]
    cluster: NDArray[np.int32]

    @property
    def tokens(self) -> int:
        """Tokens of all windows."""
        return int(self.windows.tokens.size)

    @property
    def positions(self) -> NDArray[np.int64]:
        """Scored positions of each window, [windows]."""
        return self.windows.scored_counts

    @cached_property
    def window_of_position(self) -> NDArray[np.int64]:
        """Window of every scored position, [positions]."""
        return np.repeat(np.arange(len(self.windows)), self.positions)

    def window_of_row(self, batch: Batch) -> NDArray[np.int64]:
        """Window of every row of a batch, [rows]."""
        return self.window_of_position[batch.starts]

    def by_window(self, batch: Batch, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums of a batch's scored positions, in the order of its rows, by window: [..., windows].

        Args:
            batch: One of the batches.
            values: [..., scored positions of the batch].
        """
        counts = batch.lengths - batch.scored_from
        sums = np.zeros((*values.shape[:-1], len(self.windows)))
        ends = np.cumsum(counts)
        for window, begin, end in zip(self.window_of_row(batch), ends - counts, ends, strict=True):
            sums[..., window] = values[..., begin:end].sum(-1)
        return sums

    def mean(self, sums: NDArray[np.float64]) -> float:
        """Mean per scored position from sums by window, [windows]."""
        return float(sums.sum() / self.positions.sum())

    def halves(self, sums: NDArray[np.float64]) -> tuple[float, float]:
        """The mean per scored position in the first and in the second half of the windows."""
        middle = len(self.windows) // 2
        first, second = (
            float(sums[part].sum() / self.positions[part].sum())
            for part in (slice(middle), slice(middle, None))
        )
        return first, second

    def interval(self, sums: NDArray[np.float64]) -> tuple[float, float] | None:
        """The 90 % interval of the mean, clustered; None where there is one cluster only.

        It hangs on sums and counts of clusters alone, so every position may stand for its window's mean.
        """
        per_position = np.repeat(sums / self.positions, self.positions)
        clusters = np.repeat(self.cluster, self.positions)
        estimate = ratio_estimate(clusters, per_position)
        return None if estimate.n_clusters == 1 else (estimate.ci_low, estimate.ci_high)


def scan_text(windows: Windows, tokens: int, batch_tokens: int) -> ScanText | None:
    """About so many tokens of windows that lie evenly among all of them; None where nothing can be scored.

    Args:
        windows: Calibration or selection windows.
        tokens: Tokens wanted, at most (two windows are taken at least).
        batch_tokens: Most tokens of a batch; a longer window is a batch of its own.
    """
    cut = [window[:SCAN_LENGTH] for window in windows]
    # The data stage marks nothing of calibration windows, packed from several documents, as to be scored.
    scored_from = np.where(windows.document < 0, 1, windows.scored_from)
    usable = [i for i, piece in enumerate(cut) if len(piece) > scored_from[i]]
    if len(usable) < LEAST_WINDOWS:
        return None
    chosen = _evenly(usable, lambda i: len(cut[i]), tokens)
    document = windows.document[chosen]
    text = make_windows([cut[i] for i in chosen], document.tolist(), scored_from[chosen].tolist())
    packed = document < 0
    # Numbers beside those of documents, which are never negative.
    cluster = np.where(packed, -1 - np.arange(len(chosen)), document).astype(np.int32)
    return ScanText(text, make_batches(text, batch_tokens), cluster)


def _evenly(usable: list[int], size: Callable[[int], int], tokens: int) -> list[int]:
    """As many as fit in so many tokens, at equal distances."""
    mean = sum(map(size, usable)) / len(usable)
    count = min(len(usable), max(LEAST_WINDOWS, int(tokens // mean)))
    return [usable[int((n + 0.5) * len(usable) / count)] for n in range(count)]
