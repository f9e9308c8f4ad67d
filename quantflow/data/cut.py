"""Documents to windows: packed for calibration, within one document for selection and evaluation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quantflow.data.rank import rank
from quantflow.data.windows import PACKED, Windows, make_windows

_SEPARATOR = -1


@dataclass(frozen=True)
class Cut:
    """Windows, and where every token of the documents they were cut from went.

    Attributes:
        windows: The windows.
        available: Windows there were before the draw.
        too_short_windows: Windows dropped because nothing in them could be scored.
        separators: EOS tokens in the windows that belong to no document.
        bos_added: BOS tokens in the windows that belong to no document.
        used: Tokens of each document in windows, each counted once, [documents].
        incomplete: Tokens of each document after the last whole window, [documents].
        undrawn: Tokens of each document in windows that were not drawn, and in no other, [documents].
        too_short: Tokens of each document in windows too short to score, and in no other, [documents].
    """

    windows: Windows
    available: int
    too_short_windows: int
    separators: int
    bos_added: int
    used: NDArray[np.int64]
    incomplete: NDArray[np.int64]
    undrawn: NDArray[np.int64]
    too_short: NDArray[np.int64]


@dataclass(frozen=True)
class Cutting:
    """How documents are cut into selection and evaluation windows.

    Attributes:
        length: Most tokens of a window, BOS included.
        stride: Tokens from the start of one window to that of the next, at most `length`.
        bos: BOS token that every window begins with; None for none.
    """

    length: int
    stride: int
    bos: int | None

    def count(self, tokens: int) -> int:
        """Windows of a document of so many tokens, those too short to score included."""
        room = self.length - (self.bos is not None)
        return 1 + max(0, -(-(tokens - room) // min(self.stride, room)))


@dataclass(frozen=True)
class _Span:
    """A window within a document: tokens `start` to `end`, scored from `scored_from`."""

    start: int
    end: int
    scored_from: int


def cut_documents(
    documents: Sequence[NDArray[np.int32]],
    indices: Sequence[int],
    cutting: Cutting,
    wanted: int,
    seed: int,
    names: Sequence[str],
) -> Cut:
    """Cut each document into windows and draw some of them.

    A document's first token is scored if BOS comes before it. The first token of a later window is context,
    unless windows overlap: then what earlier windows have scored is.

    Args:
        documents: Tokens of each document, [tokens] each.
        indices: Index of each document in documents.json.
        cutting: How windows are cut.
        wanted: Windows to draw; all of them are taken where there are fewer.
        seed: Seed of the draw.
        names: What each document is ranked by.
    """
    spans: list[tuple[int, _Span]] = []
    dropped = 0
    covered = np.zeros(len(documents), dtype=np.int64)
    lengths = np.array([len(tokens) for tokens in documents], dtype=np.int64)
    for i, tokens in enumerate(documents):
        for span in _spans(tokens, cutting):
            if span.scored_from >= span.end:
                dropped += 1
            else:
                spans.append((i, span))
                covered[i] = span.end
    drawn = _drawn(spans, names, wanted, seed)
    used, reached = np.zeros(len(documents), dtype=np.int64), np.zeros(len(documents), dtype=np.int64)
    pieces, owners, scored_from, added = [], [], [], 0
    for i, span in drawn:
        piece = documents[i][span.start : span.end]
        add = cutting.bos is not None and not (span.start == 0 and piece[0] == cutting.bos)
        if add:
            piece = np.concatenate([np.array([cutting.bos], dtype=np.int32), piece])
        pieces.append(piece)
        owners.append(indices[i])
        scored_from.append(span.scored_from - span.start + add)
        added += add
        used[i] += span.end - max(span.start, reached[i])
        reached[i] = span.end
    return Cut(
        windows=make_windows(pieces, owners, scored_from),
        available=len(spans),
        too_short_windows=dropped,
        separators=0,
        bos_added=added,
        used=used,
        incomplete=np.zeros(len(documents), dtype=np.int64),
        undrawn=covered - used,
        too_short=lengths - covered,
    )


def _spans(tokens: NDArray[np.int32], cutting: Cutting) -> Iterator[_Span]:
    has_bos = cutting.bos is not None
    own_bos = has_bos and int(tokens[0]) == cutting.bos
    room = cutting.length - has_bos
    stride = min(cutting.stride, room)
    # With a BOS of its own, the document's first window holds one token more of it: BOS is context already.
    end = min(len(tokens), room + own_bos)
    yield _Span(0, end, 0 if has_bos and not own_bos else 1)
    start = int(own_bos)
    while end < len(tokens):
        start += stride
        new = max(end, start + 1)
        end = min(len(tokens), start + room)
        yield _Span(start, end, new)


def _drawn(
    spans: Sequence[tuple[int, _Span]], names: Sequence[str], wanted: int, seed: int
) -> list[tuple[int, _Span]]:
    """Those of the lowest ranks, in the order of the documents."""
    if len(spans) <= wanted:
        return list(spans)
    order = sorted(
        range(len(spans)), key=lambda k: rank(seed, "window", f"{names[spans[k][0]]}:{spans[k][1].start}")
    )
    return [spans[k] for k in sorted(order[:wanted])]


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

    chosen = list(rows[drawn])
    return Cut(
        windows=make_windows(chosen, [PACKED] * len(chosen), [length] * len(chosen)),
        available=available,
        too_short_windows=0,
        separators=int(np.count_nonzero(owners[drawn] == _SEPARATOR)),
        bos_added=0,
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
