"""Which documents are kept and which set each belongs to: from seed and content, never from order."""

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quantflow.data.documents import SPLITS, SplitName
from quantflow.data.encode import TokenizedDocument
from quantflow.data.rank import rank

# Of equal remainders, the set that the run cannot do without comes first.
_TIES: tuple[SplitName, ...] = ("evaluation", "calibration", "selection")

_ROUNDING = 1e-9  # of sums of shares


@dataclass(frozen=True)
class Corpus:
    """Documents without exact copies.

    Attributes:
        documents: The kept ones, sorted by slice, id and content.
        copies: Each dropped one, with the position in `documents` of the one kept for it.
    """

    documents: tuple[TokenizedDocument, ...]
    copies: tuple[tuple[TokenizedDocument, int], ...]


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
    documents: Sequence[TokenizedDocument],
    shares: Mapping[SplitName, float],
    seed: int,
    cluster: Sequence[int] | None = None,
) -> tuple[SplitName, ...]:
    """Give every document to one split, by shares within every slice and overall.

    Near duplicates stay together: the largest groups go first, each to a split that has room for it, drawn
    by how much it has left, so that form letters are judged as often as they come. Then the single documents
    of a slice are ordered by their rank and cut. What a slice gives to a split is its share, rounded up or
    down; what rounding owes a split is carried to the next slice, so that many small slices do not all round
    the same way.

    Args:
        documents: Documents without copies.
        shares: Fraction of each split; they sum to 1.
        seed: Seed of the order.
        cluster: For each document the first of its near duplicates, its own index where it has none; None
            where nothing has.

    Returns:
        The split of each document.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for i in range(len(documents)):
        groups[i if cluster is None else cluster[i]].append(i)
    # Content decides a group's slice and rank, not the order that documents came in.
    ranks = [rank(seed, "split", document.digest) for document in documents]
    members: dict[str, list[list[int]]] = defaultdict(list)
    for group in groups.values():
        group.sort(key=lambda i: ranks[i])
        members[documents[group[0]].slice].append(group)
    result: dict[int, SplitName] = {}
    owed: dict[SplitName, float] = dict.fromkeys(SPLITS, 0.0)
    for name in sorted(members):
        ordered = sorted(members[name], key=lambda group: (-len(group), ranks[group[0]]))
        count = sum(map(len, ordered))
        ideal = {split: count * shares[split] for split in SPLITS}
        singles = [group[0] for group in ordered if len(group) == 1]
        for group in ordered[: len(ordered) - len(singles)]:
            room = {split: ideal[split] + owed[split] for split in SPLITS if shares[split]}
            split = _place(len(group), room, rank(seed, "group", documents[group[0]].digest))
            result.update(dict.fromkeys(group, split))
            ideal[split] -= len(group)
        sizes = _apportion(len(singles), ideal, owed)
        start = 0
        for split in SPLITS:
            result.update(dict.fromkeys(singles[start : start + sizes[split]], split))
            start += sizes[split]
            owed[split] += ideal[split] - sizes[split]
    return tuple(result[i] for i in range(len(documents)))


def _place(size: int, room: Mapping[SplitName, float], number: str) -> SplitName:
    """The split of a group of near duplicates: one that it fits, by chance; else the one with most room.

    Always taking the one with most room would give calibration every group until it is half full, and the
    evaluation none of the form letters that the business writes.
    """
    fitting = [split for split in SPLITS if room.get(split, 0.0) >= size]
    if not fitting:
        return max((split for split in _TIES if split in room), key=room.__getitem__)
    left = int(number, 16) / 16 ** len(number) * sum(room[split] for split in fitting)
    for split in fitting[:-1]:
        left -= room[split]
        if left < 0:
            return split
    return fitting[-1]


def _apportion(
    count: int, ideal: Mapping[SplitName, float], owed: Mapping[SplitName, float]
) -> dict[SplitName, int]:
    """Whole numbers that sum to `count`: each ideal rounded, up where most is left over and owed."""
    # A group too large for its split leaves less for the others than would be theirs.
    positive = {split: max(0.0, ideal[split]) for split in SPLITS}
    total = sum(positive.values())
    quotas = {
        split: positive[split] * count / total if total > count + _ROUNDING else ideal[split]
        for split in SPLITS
    }
    sizes: dict[SplitName, int] = {split: math.floor(quotas[split]) for split in SPLITS}
    left = count - sum(sizes.values())
    largest = sorted(_TIES, key=lambda split: sizes[split] - quotas[split] - owed[split])
    for split in largest[:left]:
        sizes[split] += 1
    return sizes
