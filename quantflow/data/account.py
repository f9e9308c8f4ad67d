"""Where every document and token went, by split and by slice."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from quantflow.data.cut import Cut
from quantflow.data.documents import Accounting, Counts, SplitAccounting, SplitName
from quantflow.data.encode import TokenizedDocument
from quantflow.data.windows import PACKED, scored_documents


def account_split(
    cut: Cut, documents: Sequence[TokenizedDocument], copies: Sequence[TokenizedDocument], length: int
) -> SplitAccounting:
    """Count what became of one split.

    Args:
        cut: Its windows.
        documents: Its documents, in the order that `cut` counts them.
        copies: Dropped copies of its documents.
        length: Length of its windows, as asked.
    """
    names = sorted({document.slice for document in (*documents, *copies)})
    slices = {name: _count(cut, documents, copies, name) for name in names}
    packed = bool((cut.windows.document == PACKED).any())
    return SplitAccounting(
        length=length,
        windows=len(cut.windows),
        windows_available=cut.available,
        windows_too_short=cut.too_short_windows,
        separators=cut.separators,
        scored_positions=0 if packed else len(scored_documents(cut.windows)),
        total=add_counts(slices.values()),
        slices=slices,
    )


def account(seed: int, splits: Mapping[SplitName, SplitAccounting]) -> Accounting:
    """Put the splits together."""
    return Accounting(seed=seed, total=add_counts(split.total for split in splits.values()), splits=splits)


def add_counts(counts: Iterable[Counts]) -> Counts:
    """Field by field sum."""
    parts = list(counts)
    return Counts(**{name: sum(getattr(part, name) for part in parts) for name in Counts.model_fields})


def _count(
    cut: Cut, documents: Sequence[TokenizedDocument], copies: Sequence[TokenizedDocument], name: str
) -> Counts:
    mine = np.array([document.slice == name for document in documents], dtype=np.bool_)
    lengths = np.array([len(document.tokens) for document in documents], dtype=np.int64)
    copied = [len(copy.tokens) for copy in copies if copy.slice == name]

    def total(values: NDArray[np.int64]) -> int:
        return int(values[mine].sum())

    return Counts(
        documents_read=int(mine.sum()) + len(copied),
        documents_duplicate=len(copied),
        documents_used=int(np.count_nonzero(cut.used[mine])),
        tokens_read=total(lengths) + sum(copied),
        tokens_duplicate=sum(copied),
        tokens_used=total(cut.used),
        tokens_incomplete=total(cut.incomplete),
        tokens_undrawn=total(cut.undrawn),
        tokens_too_short=total(cut.too_short),
    )
