"""Documents to windows: packed for calibration, within one document for selection and evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quantflow.data.split import rank
from quantflow.data.windows import PACKED, Windows, make_windows

MIN_WINDOW = 2
"""Tokens below which a window scores nothing: its first token is context only."""

_SEPARATOR = -1


@dataclass(frozen=True)
class Cut:
    """Windows, and where every token of the documents they were cut from went.

    Attributes:
        windows: The windows.
        available: Windows there were before the draw.
        too_short_windows: Windows dropped because nothing in them could be scored.
        separators: EOS tokens in the windows that belong to no document.
        used: Tokens of each document in windows, [documents].
        incomplete: Tokens of each document after the last whole window, [documents].
        undrawn: Tokens of each document in windows that were not drawn, [documents].
        too_short: Tokens of each document in windows too short to score, [documents].
    """

    windows: Windows
    available: int
    too_short_windows: int
    separators: int
    used: NDArray[np.int64]
    incomplete: NDArray[np.int64]
    undrawn: NDArray[np.int64]
    too_short: NDArray[np.int64]


def cut_documents(documents: Sequence[NDArray[np.int32]], indices: Sequence[int], length: int) -> Cut:
    """Cut each document into consecutive windows of at most `length` tokens.

    Args:
        documents: Tokens of each document, [tokens] each.
        indices: Index of each document in documents.json.
        length: Most tokens of a window.
    """
    pieces: list[NDArray[np.int32]] = []
    owners: list[int] = []
    dropped = 0
    used = np.zeros(len(documents), dtype=np.int64)
    too_short = np.zeros(len(documents), dtype=np.int64)
    for i, tokens in enumerate(documents):
        for start in range(0, len(tokens), length):
            piece = tokens[start : start + length]
            if len(piece) < MIN_WINDOW:
                too_short[i] += len(piece)
                dropped += 1
                continue
            used[i] += len(piece)
            pieces.append(piece)
            owners.append(indices[i])
    none = np.zeros(len(documents), dtype=np.int64)
    return Cut(
        windows=make_windows(pieces, owners),
        available=len(pieces),
        too_short_windows=dropped,
        separators=0,
        used=used,
        incomplete=none,
        undrawn=none,
        too_short=too_short,
    )


def pack_documents(
    documents: Sequence[NDArray[np.int32]], eos: int | None, length: int, wanted: int, seed: int
) -> Cut:
    """Lay documents end to end, cut windows of exactly `length` tokens and draw some of them.

    Args:
        documents: Tokens of each document, [tokens] each, in the order of packing.
        eos: Token put between documents, unless a document ends with it already; None for no separator.
        length: Tokens of a window.
        wanted: Windows to draw; all of them are taken where there are fewer.
        seed: Seed of the draw.
    """
    tokens, owner = _stream(documents, eos)
    available = len(tokens) // length
    whole = available * length
    rows = tokens[:whole].reshape(available, length)
    owners = owner[:whole].reshape(available, length)
    order = sorted(range(available), key=lambda i: (rank(seed, "draw", rows[i].tobytes().hex()), i))
    drawn = np.zeros(available, dtype=np.bool_)
    drawn[order[:wanted]] = True

    def per_document(part: NDArray[np.int32]) -> NDArray[np.int64]:
        counts = np.bincount(part[part != _SEPARATOR].ravel(), minlength=len(documents))
        return counts.astype(np.int64)

    return Cut(
        windows=make_windows(list(rows[drawn]), [PACKED] * int(drawn.sum())),
        available=available,
        too_short_windows=0,
        separators=int(np.count_nonzero(owners[drawn] == _SEPARATOR)),
        used=per_document(owners[drawn]),
        incomplete=per_document(owner[whole:]),
        undrawn=per_document(owners[~drawn]),
        too_short=np.zeros(len(documents), dtype=np.int64),
    )


def _stream(
    documents: Sequence[NDArray[np.int32]], eos: int | None
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """All tokens end to end, [total], and the position in `documents` that each comes from, [total]."""
    pieces: list[NDArray[np.int32]] = [np.empty(0, dtype=np.int32)]
    owners: list[NDArray[np.int32]] = [np.empty(0, dtype=np.int32)]
    for i, tokens in enumerate(documents):
        pieces.append(tokens)
        owners.append(np.full(len(tokens), i, dtype=np.int32))
        is_last = i == len(documents) - 1
        if eos is not None and not is_last and tokens[-1] != eos:
            pieces.append(np.array([eos], dtype=np.int32))
            owners.append(np.array([_SEPARATOR], dtype=np.int32))
    return np.concatenate(pieces), np.concatenate(owners)
