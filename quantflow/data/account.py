"""Where every drawn document and token went, by split and by slice."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quantflow.data.cut import Cut
from quantflow.data.documents import Counts, SplitAccounting
from quantflow.data.encode import TokenizedDocument
from quantflow.data.windows import PACKED


@dataclass(frozen=True)
class Copies:
    """Copies of one document that were dropped.

    Attributes:
        slice: The slice they came under.
        tokens: Tokens of each.
        count: How many there are.
    """

    slice: str
    tokens: int
    count: int


def account_split(
    cut: Cut,
    documents: Sequence[TokenizedDocument],
    near: Sequence[bool],
    copies: Sequence[Copies],
    length: int,
    *,
    stride: int | None = None,
    bos: bool = False,
    overlap: float | None = None,
    documents_overlapping: int | None = None,
) -> SplitAccounting:
    """Count what became of one split.

    Args:
        cut: Its windows.
        documents: Its documents, in the order that `cut` counts them.
        near: Whether each of them is a near duplicate of an earlier one.
        copies: Dropped copies of its documents.
        length: Length of its windows, as asked.
        stride: Stride of its windows; None where they are packed.
        bos: Whether its windows begin with BOS.
        overlap: Fraction of its tokens in passages of the windows used before it.
        documents_overlapping: Documents of it with such a passage.
    """
    names = sorted({document.slice for document in documents} | {copy.slice for copy in copies})
    packed = bool((cut.windows.document == PACKED).any())
    slices = {name: _count(cut, documents, near, copies, name, packed=packed) for name in names}
    return SplitAccounting(
        length=length,
        stride=stride,
        bos=bos,
        windows=len(cut.windows),
        windows_available=cut.available,
        windows_too_short=cut.too_short_windows,
        separators=cut.separators,
        bos_added=cut.bos_added,
        scored_positions=int(cut.windows.scored_counts.sum()),
        overlap=overlap,
        documents_overlapping=documents_overlapping,
        total=add_counts(slices.values()),
        slices=slices,
    )


def add_counts(counts: Iterable[Counts]) -> Counts:
    """Field by field sum."""
    parts = list(counts)
    return Counts(**{name: sum(getattr(part, name) for part in parts) for name in Counts.model_fields})


def _count(
    cut: Cut,
    documents: Sequence[TokenizedDocument],
    near: Sequence[bool],
    copies: Sequence[Copies],
    name: str,
    *,
    packed: bool,
) -> Counts:
    mine = np.array([document.slice == name for document in documents], dtype=np.bool_)
    lengths = np.array([len(document.tokens) for document in documents], dtype=np.int64)
    copied = [copy for copy in copies if copy.slice == name]

    def total(values: NDArray[np.int64]) -> int:
        return int(values[mine].sum())

    def number(which: NDArray[np.bool_]) -> int:
        return int(np.count_nonzero(which[mine]))

    tokens_copied = sum(copy.tokens * copy.count for copy in copied)
    return Counts(
        documents_read=int(mine.sum()) + sum(copy.count for copy in copied),
        documents_duplicate=sum(copy.count for copy in copied),
        documents_near_duplicate=number(np.array(near, dtype=np.bool_)),
        documents_used=number(cut.used > 0),
        documents_truncated=number((cut.used > 0) & (cut.used < lengths)),
        documents_too_short=0 if packed else number(cut.too_short == lengths),
        tokens_read=total(lengths) + tokens_copied,
        tokens_duplicate=tokens_copied,
        tokens_used=total(cut.used),
        tokens_incomplete=total(cut.incomplete),
        tokens_undrawn=total(cut.undrawn),
        tokens_too_short=total(cut.too_short),
    )
