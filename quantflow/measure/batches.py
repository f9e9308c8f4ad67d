"""Evaluation windows in batches of equal work, the same for baseline and artifact."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quantflow.data.windows import Windows

LOGITS_BYTES = 64 << 20
"""Most bytes of float32 logits held at once for one model; larger chunks are no faster on a CPU."""


@dataclass(frozen=True)
class Batch:
    """Some windows side by side.

    Attributes:
        ids: Token ids, short windows padded on the right with zeros, [windows, longest].
        lengths: Tokens of each window, [windows].
        starts: Index of each window's first scored position among all scored positions, [windows].
        scored_from: Place of the first scored token in each window, at least 1, [windows].
    """

    ids: NDArray[np.int64]
    lengths: NDArray[np.int64]
    starts: NDArray[np.int64]
    scored_from: NDArray[np.int64]

    @property
    def positions(self) -> int:
        """Scored positions of all its windows."""
        return int((self.lengths - self.scored_from).sum())

    def scored(self) -> Iterator[tuple[int, int, slice]]:
        """For each window its row, its first scored position and where in it the scored are predicted.

        A token is predicted at the one before it: scored tokens s … n − 1 at tokens s − 1 … n − 2.
        """
        rows = zip(self.starts, self.lengths, self.scored_from, strict=True)
        for row, (start, length, first) in enumerate(rows):
            yield row, int(start), slice(int(first) - 1, int(length) - 1)


def make_batches(windows: Windows, batch_tokens: int) -> tuple[Batch, ...]:
    """Put windows of similar length together, the longest first.

    Args:
        windows: Evaluation windows.
        batch_tokens: Most tokens of a batch, padding included; a longer window is a batch of its own.
    """
    lengths = np.diff(windows.offsets)
    counts = windows.scored_counts
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    order = np.argsort(-lengths, kind="stable")
    order = order[counts[order] > 0]
    pieces = list(windows)
    batches = []
    while order.size:
        longest = int(lengths[order[0]])
        chosen, order = np.split(order, [max(1, batch_tokens // longest)])
        ids = np.zeros((chosen.size, longest), dtype=np.int64)
        for row, window in enumerate(chosen):
            ids[row, : lengths[window]] = pieces[window]
        batches.append(
            Batch(ids, lengths[chosen], starts[chosen], windows.scored_from[chosen].astype(np.int64))
        )
    return tuple(batches)


def scored_targets(windows: Windows) -> NDArray[np.int64]:
    """The token that came at every scored position, in order, [positions]."""
    return np.concatenate([np.empty(0, dtype=np.int64), *_scored_tokens(windows)])


def _scored_tokens(windows: Windows) -> Iterator[NDArray[np.int32]]:
    for window, first in zip(windows, windows.scored_from, strict=True):
        yield window[first:]
