"""Which texts stand in other texts: a passage word for word, or nearly all of one."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quantflow.data.near import clusters, letters, mixed, signature

PASSAGE = 75
"""Letters and blanks of a passage, a Chinese character counting for three: thirteen words of English, the
length from which Brown et al., "Language Models are Few-Shot Learners" (2020, appendix C), take an item for
one that was seen. Greetings and set phrases are shorter."""

SHORTEST = 40
"""Letters of a text that counts if all of it is found though it is shorter than a passage; of what is shorter
still, such as an answer of one word, nothing can be told."""

_BASE = np.uint64(6364136223846793005)  # odd, so that it has an inverse; of Knuth's generator MMIX
_INVERSE = np.uint64(pow(int(_BASE), -1, 2**64))


class Passages:
    """Passages of documents, to be looked up.

    Args:
        documents: Their texts.
    """

    def __init__(self, documents: Sequence[str]) -> None:
        self._letters = [letters(text) for text in documents]
        self._of = {length: _index(self._letters, length) for length in (PASSAGE, SHORTEST)}

    def find(self, text: str) -> int | None:
        """The first document that has a passage of a text, or all of a short one; None where none has."""
        own = letters(text)
        if own.size >= PASSAGE:
            hashes, owners = self._of[PASSAGE]
            passages = hashes_of(own, PASSAGE)
            found = np.isin(passages, hashes)
            if not found.any():
                return None
            return int(owners[np.searchsorted(hashes, passages[found.argmax()])])
        return self._find_whole(own) if own.size >= SHORTEST else None

    def _find_whole(self, own: NDArray[np.uint64]) -> int | None:
        hashes, owners = self._of[SHORTEST]
        begins = hashes_of(own, SHORTEST)[0]
        at = int(np.searchsorted(hashes, begins))
        if at == hashes.size or hashes[at] != begins:
            return None
        whole, first = hashes_of(own, own.size)[0], int(owners[at])
        having = (
            document
            for document in range(first, len(self._letters))  # others may have the same beginning
            if whole in hashes_of(self._letters[document], own.size)
        )
        return next(having, None)


def hashes_of(values: NDArray[np.uint64], length: int) -> NDArray[np.uint64]:
    """A hash of every run of so many values, [values − length + 1], none where there are fewer.

    Differences of a polynomial's partial sums (Karp & Rabin 1987), modulo 2⁶⁴.
    """
    if values.size < length:
        return np.empty(0, dtype=np.uint64)
    powers = np.cumprod(np.full(values.size, _BASE))
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(mixed(values + np.uint64(1)) * powers)])
    back = np.cumprod(np.full(values.size - length + 1, _INVERSE))
    return mixed((sums[length:] - sums[:-length]) * back)


def near_documents(items: Sequence[str], documents: Sequence[str]) -> list[int | None]:
    """For each item the first document that is nearly the same, directly or by way of others; else None.

    Args:
        items: Texts of items.
        documents: Texts of documents.
    """
    if not items or not documents:
        return [None] * len(items)
    first = clusters(np.stack([signature(text) for text in (*documents, *items)]))
    return [int(at) if at < len(documents) else None for at in first[len(documents) :]]


def _index(
    documents: Sequence[NDArray[np.uint64]], length: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hashes of all passages, ascending, each once, and the first document of each."""
    hashed = [hashes_of(document, length) for document in documents]
    owners = np.repeat(np.arange(len(hashed)), [own.size for own in hashed])
    hashes, first = np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *hashed]), return_index=True)
    return hashes, owners[first]
