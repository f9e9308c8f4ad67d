"""Near duplicates: MinHash signatures of documents, and the groups of those that are nearly the same."""

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

NEAR_DUPLICATE = 0.8
"""Share of two documents' shingles that both have (Jaccard) from which they are near duplicates; the value of
Lee et al., "Deduplicating Training Data Makes Language Models Better" (2022)."""

SHINGLE = 5
"""Characters of a shingle, what Leskovec, Rajaraman & Ullman, Mining of Massive Datasets (3rd ed., §3.2.2),
suggest for e-mails."""

LETTERS_OF_WIDE = 3
"""Letters that a Chinese, Japanese or Korean character counts for: texts have a third as many of
them, and a changed name or number must not weigh three times as much."""

_WIDE = ((0x2E80, 0x9FFF), (0xAC00, 0xD7AF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
"""Code points of such characters: Han, kana and their marks; Hangul syllables; compatibility and rare Han."""

BANDS, ROWS = 32, 8
"""Of the 256 values of a signature, two documents are compared if the 8 of any of 32 bands are equal: at a
Jaccard similarity of 0.8 that is missed once in 360 times, at 0.5 it happens in 12 % (ibid., §3.4.2). What is
compared is known with a standard error of 0.025 at 0.8."""

PERMUTATIONS = BANDS * ROWS

_GLANCE_DOUBT = 0.15
"""Three standard errors of a similarity of 0.8 that is estimated from a quarter of a signature."""

_CHUNK = 1 << 13
_BLANKS = re.compile(r"\s+")
_SEED = 20_240_607  # of the permutations: any will do, the same for ever


def _odd_numbers(count: int) -> NDArray[np.uint64]:
    numbers = np.random.Generator(np.random.PCG64(_SEED)).integers(0, 2**63, size=count, dtype=np.uint64)
    return numbers * np.uint64(2) + np.uint64(1)


_WEIGHTS = _odd_numbers(SHINGLE)
_FACTORS = _odd_numbers(PERMUTATIONS)


def signature(text: str) -> NDArray[np.uint32]:
    """The MinHash signature of a text (Broder, "On the resemblance and containment of documents", 1997).

    Case and kinds of blanks do not count.

    Args:
        text: Any text.

    Returns:
        For each permutation the least hash of all shingles, [permutations]. Hashes are multiply-shift ones
        (Dietzfelbinger et al. 1997) of a polynomial over the characters.
    """
    characters = letters(text)
    if characters.size < SHINGLE:
        characters = np.pad(characters, (0, SHINGLE - characters.size))
    shingles = np.zeros(characters.size - SHINGLE + 1, dtype=np.uint64)
    for offset, weight in enumerate(_WEIGHTS):
        shingles += mixed(characters[offset : offset + shingles.size] + np.uint64(1)) * weight
    shingles = mixed(shingles)
    least = np.full(PERMUTATIONS, np.iinfo(np.uint64).max, dtype=np.uint64)
    for start in range(0, shingles.size, _CHUNK):
        hashes = shingles[start : start + _CHUNK, None] * _FACTORS
        np.minimum(least, hashes.min(axis=0), out=least)
    return (least >> np.uint64(32)).astype(np.uint32)


def letters(text: str) -> NDArray[np.uint64]:
    """A text's characters as numbers; case and kinds of blanks do not count, wide characters are several."""
    plain = _BLANKS.sub(" ", text.casefold()).strip()
    return _letters(np.frombuffer(plain.encode("utf-32-le", "surrogatepass"), dtype="<u4"))


def _letters(code_points: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Characters as numbers, wide ones as several: the character once for each of its letters, numbered."""
    wide = np.zeros(code_points.size, dtype=np.bool_)
    for first, last in _WIDE:
        wide |= (code_points >= first) & (code_points <= last)
    repeats = np.where(wide, LETTERS_OF_WIDE, 1)
    begins = np.cumsum(repeats) - repeats
    numbers = np.arange(repeats.sum()) - np.repeat(begins, repeats)
    letters: NDArray[np.int64] = np.repeat(code_points.astype(np.int64), repeats) * LETTERS_OF_WIDE + numbers
    return letters.astype(np.uint64)


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread each number over all 64 bits (the finaliser of SplitMix64, Steele et al. 2014)."""
    spread = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    spread = (spread ^ (spread >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return spread ^ (spread >> np.uint64(31))


def clusters(signatures: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Group documents that are near duplicates of one another, directly or by way of others.

    Args:
        signatures: Of all documents, [documents, permutations].

    Returns:
        For each document the index of the first one in its group, its own where it is alone, [documents].
    """
    count = len(signatures)
    parent = np.arange(count, dtype=np.int64)
    glance = np.ascontiguousarray(signatures[:, ::4])

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = int(parent[i])
        return i

    for band in range(BANDS):
        for members in _equal(signatures[:, band * ROWS : (band + 1) * ROWS]):
            roots = np.array([root(i) for i in members])
            # Of a group that is known, one stands for all: copies of a form letter are compared once.
            waiting = members[np.sort(np.unique(roots, return_index=True)[1])]
            while waiting.size > 1:
                first, rest = waiting[0], waiting[1:]
                # A quarter of the values rules out most of those that only share a form's fixed words.
                close = (glance[rest] == glance[first]).mean(axis=1) >= NEAR_DUPLICATE - _GLANCE_DOUBT
                alike = np.zeros(rest.size, dtype=np.bool_)
                alike[close] = (signatures[rest[close]] == signatures[first]).mean(axis=1) >= NEAR_DUPLICATE
                for other in rest[alike]:
                    a, b = sorted((root(int(first)), root(int(other))))
                    parent[b] = a
                waiting = rest[~alike]
    return np.array([root(i) for i in range(count)], dtype=np.int64)


def _equal(rows: NDArray[np.uint32]) -> list[NDArray[np.int64]]:
    """Indices of rows that are equal, for each set of two or more, in ascending order."""
    if len(rows) < 2:
        return []
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    changes = np.flatnonzero((ordered[1:] != ordered[:-1]).any(axis=1)) + 1
    bounds = [0, *changes.tolist(), len(rows)]
    return [np.sort(order[a:b]) for a, b in pairwise(bounds) if b - a > 1]


def sizes(cluster: Sequence[int] | NDArray[np.int64]) -> dict[int, int]:
    """First document of each group of two or more → how many it has."""
    counted: dict[int, int] = defaultdict(int)
    for first in cluster:
        counted[int(first)] += 1
    return {first: size for first, size in counted.items() if size > 1}
