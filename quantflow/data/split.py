"""Which documents are kept and which set each belongs to: from seed and content, never from order."""

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quantflow.data.documents import SPLITS, SplitName
from quantflow.data.encode import TokenizedDocument

# Of equal remainders, the set that the run cannot do without comes first.
_TIES: tuple[SplitName, ...] = ("evaluation", "calibration", "selection")


@dataclass(frozen=True)
class Corpus:
    """Documents without exact copies.

    Attributes:
        documents: The kept ones, sorted by slice, id and content.
        copies: Each dropped one, with the position in `documents` of the one kept for it.
    """

    documents: tuple[TokenizedDocument, ...]
    copies: tuple[tuple[TokenizedDocument, int], ...]


def rank(seed: int, purpose: str, content: str) -> str:
    """A number drawn for a content: SHA-256 of seed, purpose and content.

    Args:
        seed: The recipe's seed.
        purpose: What it orders, so that two orders of the same contents have nothing to do with one another.
        content: What is ordered.
    """
    return hashlib.sha256(f"{purpose}:{seed}:{content}".encode()).hexdigest()


def drop_copies(documents: Sequence[TokenizedDocument]) -> Corpus:
    """Keep one of the documents that have the same tokens: the first by slice, id and content."""
    ordered = sorted(documents, key=lambda document: (document.slice, document.id, document.digest))
    kept: list[TokenizedDocument] = []
    copies: list[tuple[TokenizedDocument, int]] = []
    seen: dict[bytes, int] = {}
    for document in ordered:
        key = hashlib.sha256(document.tokens.tobytes()).digest()
        if key in seen:
            copies.append((document, seen[key]))
        else:
            seen[key] = len(kept)
            kept.append(document)
    return Corpus(tuple(kept), tuple(copies))


def assign_splits(
    documents: Sequence[TokenizedDocument], shares: Mapping[SplitName, float], seed: int
) -> tuple[SplitName, ...]:
    """Give every document to one split, by shares within every slice and overall.

    Within a slice documents are ordered by their rank and cut. What a slice gives to a split is its share,
    rounded up or down; what rounding owes a split is carried to the next slice, so that many small slices do
    not all round the same way.

    Args:
        documents: Documents without copies.
        shares: Fraction of each split; they sum to 1.
        seed: Seed of the order.

    Returns:
        The split of each document.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for i, document in enumerate(documents):
        members[document.slice].append(i)
    result: dict[int, SplitName] = {}
    owed: dict[SplitName, float] = dict.fromkeys(SPLITS, 0.0)
    for name in sorted(members):
        order = sorted(members[name], key=lambda i: rank(seed, "split", documents[i].digest))
        sizes, owed = _apportion(len(order), shares, owed)
        start = 0
        for split in SPLITS:
            result.update(dict.fromkeys(order[start : start + sizes[split]], split))
            start += sizes[split]
    return tuple(result[i] for i in range(len(documents)))


def _apportion(
    count: int, shares: Mapping[SplitName, float], owed: Mapping[SplitName, float]
) -> tuple[dict[SplitName, int], dict[SplitName, float]]:
    """Largest remainders, with what earlier slices owe added to each; and what is owed then."""
    sizes: dict[SplitName, int] = {split: math.floor(count * shares[split]) for split in SPLITS}
    remainders = {split: count * shares[split] - sizes[split] + owed[split] for split in SPLITS}
    left = count - sum(sizes.values())
    largest = sorted(_TIES, key=lambda split: -remainders[split])[:left]
    for split in largest:
        sizes[split] += 1
        remainders[split] -= 1
    return sizes, remainders
