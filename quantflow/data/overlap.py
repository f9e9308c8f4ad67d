"""How much of the evaluation text stands word for word in what was calibrated or chosen on."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quantflow.data.windows import Windows

PASSAGE = 50
"""Tokens of a passage; the length from which Lee et al., "Deduplicating Training Data Makes Language Models
Better" (2022), take equal text for copied text. Greetings and set phrases are shorter."""

_FACTOR = np.uint64(6364136223846793005)  # of Knuth's generator MMIX


def overlapping(windows: Windows, used: Sequence[Windows]) -> NDArray[np.bool_]:
    """Which of the windows' tokens stand in a passage that windows used before have, too, [tokens].

    Args:
        windows: Evaluation or selection windows.
        used: Calibration windows; before an evaluation, selection windows as well.
    """
    if not windows.tokens.size:
        return np.zeros(0, dtype=np.bool_)
    known = np.unique(np.concatenate([_passages(of) for of in used]))
    found = np.isin(_passages(windows), known)
    covered = np.zeros(windows.tokens.size, dtype=np.bool_)
    at = 0
    for start, end in zip(windows.offsets[:-1], windows.offsets[1:], strict=True):
        count = max(0, int(end - start) - PASSAGE + 1)
        # +1 where a passage begins, −1 after its end: where the sum is positive, a passage covers the token.
        edges = np.zeros(int(end - start) + 1, dtype=np.int64)
        mine = found[at : at + count]
        edges[:count] += mine
        edges[PASSAGE : PASSAGE + count] -= mine
        covered[start:end] = np.cumsum(edges)[:-1] > 0
        at += count
    return covered


def overlap(windows: Windows, used: Sequence[Windows]) -> float:
    """Fraction of the windows' tokens for which that holds, see `overlapping`."""
    covered = overlapping(windows, used)
    return float(covered.mean()) if covered.size else 0.0


def overlapping_documents(windows: Windows, used: Sequence[Windows]) -> int:
    """Documents of the windows with a token for which it holds, see `overlapping`."""
    owner = np.repeat(windows.document, np.diff(windows.offsets))
    return int(np.unique(owner[overlapping(windows, used)]).size)


def _passages(windows: Windows) -> NDArray[np.uint64]:
    """A hash of every run of `PASSAGE` tokens within one window, window after window."""
    hashes = [np.empty(0, dtype=np.uint64)]
    for window in windows:
        count = len(window) - PASSAGE + 1
        if count <= 0:
            continue
        tokens = window.astype(np.uint64) + np.uint64(1)
        hashed = np.zeros(count, dtype=np.uint64)
        for offset in range(PASSAGE):
            hashed = (hashed ^ (hashed >> np.uint64(29))) * _FACTOR + tokens[offset : offset + count]
        hashes.append(hashed)
    return np.concatenate(hashes)
