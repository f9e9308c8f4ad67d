"""Evaluation windows in batches of equal work, the same for baseline and artifact."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quantflow.data.windows import Windows


@dataclass(frozen=True)
class Batch:
    """Some windows side by side.

    Attributes:
        ids: Token ids, short windows padded on the right with zeros, [windows, longest].
        lengths: Tokens of each window, [windows].
        starts: Index of each window's first scored position among all scored positions, [windows].
    """

    ids: NDArray[np.int64]
    lengths: NDArray[np.int64]
    starts: NDArray[np.int64]

    def scored(self) -> Iterator[tuple[int, int, int]]:
        """For each window its row, its first scored position and how many there are.

        A window of n tokens has n − 1: what is predicted at its tokens 0 … n − 2.
        """
        for row, (start, length) in enumerate(zip(self.starts, self.lengths, strict=True)):
            yield row, int(start), int(length) - 1


def make_batches(windows: Windows, batch_tokens: int) -> tuple[Batch, ...]:
    """Put windows of similar length together, the longest first.

    Args:
        windows: Evaluation windows.
        batch_tokens: Most tokens of a batch, padding included; a longer window is a batch of its own.
    """
    lengths = np.diff(windows.offsets)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.maximum(lengths - 1, 0))])
    order = np.argsort(-lengths, kind="stable")
    order = order[lengths[order] > 1]  # shorter ones have nothing to score
    pieces = list(windows)
    batches = []
    while order.size:
        longest = int(lengths[order[0]])
        chosen, order = np.split(order, [max(1, batch_tokens // longest)])
        ids = np.zeros((chosen.size, longest), dtype=np.int64)
        for row, window in enumerate(chosen):
            ids[row, : lengths[window]] = pieces[window]
        batches.append(Batch(ids, lengths[chosen], starts[chosen]))
    return tuple(batches)


def scored_targets(windows: Windows) -> NDArray[np.int64]:
    """The token that came at every scored position, in order, [positions]."""
    return np.concatenate([np.empty(0, dtype=np.int64), *(window[1:] for window in windows)])
