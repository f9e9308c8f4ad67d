"""Token windows on disk: what calibration, selection and evaluation read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

CALIBRATION_FILE = "calibration.safetensors"
SELECTION_FILE = "selection.safetensors"
EVALUATION_FILE = "evaluation.safetensors"
CALIBRATED_FILE = "calibration-documents.safetensors"
"""The documents that calibration windows are packed from, each by itself and whole, in random order."""

PACKED = -1
"""`Windows.document` of a window packed from several documents."""


@dataclass(frozen=True)
class Windows:
    """Token windows of several lengths, end to end.

    What comes before the first scored token of a window is context only; that token and every later one are
    scored. Overlapping windows score each token of a document once.

    Attributes:
        tokens: Token ids of all windows, [total].
        offsets: Where each window begins, and the end of the last, [windows + 1].
        document: Index of each window's document in documents.json, `PACKED` for calibration, [windows].
        scored_from: Place in each window of its first scored token, at least 1, since the first token is
            predicted by nothing; the window's length where nothing is scored, [windows].
    """

    tokens: NDArray[np.int32]
    offsets: NDArray[np.int64]
    document: NDArray[np.int32]
    scored_from: NDArray[np.int32]

    @property
    def scored_counts(self) -> NDArray[np.int64]:
        """Scored tokens of each window, [windows]."""
        return np.maximum(np.diff(self.offsets) - self.scored_from, 0)

    def __len__(self) -> int:
        """Number of windows."""
        return len(self.document)

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        """The tokens of each window, [length]."""
        for start, end in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            yield self.tokens[start:end]


def make_windows(
    pieces: Sequence[NDArray[np.int32]], document: Sequence[int], scored_from: Sequence[int] | None = None
) -> Windows:
    """Lay windows end to end.

    Args:
        pieces: Tokens of each window, [length] each.
        document: Index of each window's document, or `PACKED`.
        scored_from: Place of each window's first scored token; if None, 1: all but the first are scored.
    """
    lengths = np.fromiter((len(piece) for piece in pieces), dtype=np.int64, count=len(pieces))
    return Windows(
        tokens=np.concatenate([np.empty(0, dtype=np.int32), *pieces]),
        offsets=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]),
        document=np.asarray(document, dtype=np.int32),
        scored_from=np.asarray([1] * len(pieces) if scored_from is None else scored_from, dtype=np.int32),
    )


def some_windows(windows: Windows, chosen: NDArray[np.int64]) -> tuple[Windows, NDArray[np.int64]]:
    """Some windows by themselves, and where their scored positions are among those of all.

    Args:
        windows: All.
        chosen: Indices of some, in the order in which they are to be.

    Returns:
        They, and the place of every scored position of theirs, [positions].
    """
    pieces = list(windows)
    some = make_windows(
        [pieces[i] for i in chosen], windows.document[chosen].tolist(), windows.scored_from[chosen].tolist()
    )
    counts = windows.scored_counts
    ends = np.cumsum(counts)
    at = [np.empty(0, dtype=np.int64), *(np.arange(ends[i] - counts[i], ends[i]) for i in chosen)]
    return some, np.concatenate(at)


def scored_documents(windows: Windows) -> NDArray[np.int32]:
    """Document of every scored position, in the order of the windows, [positions]."""
    return np.repeat(windows.document, windows.scored_counts)


def save_windows(path: Path, windows: Windows) -> None:
    """Write windows as a safetensors file."""
    tensors: dict[str, NDArray[Any]] = {
        "tokens": windows.tokens,
        "offsets": windows.offsets,
        "document": windows.document,
        "scored_from": windows.scored_from,
    }
    path.write_bytes(save(tensors))


def load_windows(path: Path) -> Windows:
    """Read windows that `save_windows` wrote."""
    tensors = load_file(path)
    return Windows(tensors["tokens"], tensors["offsets"], tensors["document"], tensors["scored_from"])
