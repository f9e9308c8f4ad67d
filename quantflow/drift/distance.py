"""The Jensen-Shannon divergence of two texts' token distributions, with documents as the sample."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from quantflow.drift.record import Difference
from quantflow.gate.statistics import t_quantile
from quantflow.gate.studentized import Clusters

PERMUTATIONS = 499
"""Random ways to deal documents out: their mean is then known to a twentieth of their spread."""

PARTS = 499
"""Parts of each text that are left out in turn, at most: documents, where there are no more of them."""

_AT_ONCE = 1 << 22
"""Counts, or places of documents, held at once: some tens of megabytes."""

_SEED = 20_261_130  # any will do, the same for ever: equal texts have equal figures

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TokenCounts:
    """How often each group of documents has each token.

    Attributes:
        tokens: Token ids that occur, ascending, [types].
        counts: [groups, types]; groups of calibration come first.
        calibration: Groups that are of calibration.
    """

    tokens: NDArray[np.int64]
    counts: csr_array
    calibration: int


def count_tokens(
    calibration: Sequence[NDArray[np.int32]],
    reference: Sequence[NDArray[np.int32]],
    calibration_group: Sequence[int],
    reference_group: Sequence[int],
) -> TokenCounts:
    """Count both texts.

    Args:
        calibration: Tokens of each calibration document, [tokens] each.
        reference: Tokens of each document of production.
        calibration_group: What stands for each calibration document and its near duplicates.
        reference_group: The same of production's.
    """
    own = np.unique(np.asarray(calibration_group), return_inverse=True)[1]
    other = np.unique(np.asarray(reference_group), return_inverse=True)[1]
    groups = np.concatenate([own, other + own.max() + 1])
    rows = np.repeat(groups, [len(document) for document in (*calibration, *reference)])
    tokens, columns = np.unique(np.concatenate([*calibration, *reference]), return_inverse=True)
    shape = (int(groups.max()) + 1, tokens.size)
    counts = csr_array((np.ones(rows.size), (rows, columns)), shape=shape)
    counts.sum_duplicates()
    return TokenCounts(tokens.astype(np.int64), counts, int(own.max()) + 1)


def token_difference(counted: TokenCounts) -> Difference:
    """How far two texts' token distributions differ, beyond what chance gives.

    JS(P, Q) = ½ KL(P ‖ M) + ½ KL(Q ‖ M) with M = ½ (P + Q) and logarithms to base 2 (Lin 1991, "Divergence
    measures based on the Shannon entropy"). Counted on samples it is too large, the more so the fewer tokens
    there are; by how much is found by dealing the documents of both texts out at random. Where the texts
    differ, that is more than the excess of either by chance, as documents of two kinds are dealt out: the
    upper bound takes off no more than the jackknife finds, which is too little where many tokens are rare
    (Paninski 2003 on plug-in entropies). So either bound errs to its own side. Its standard error
    is by linearisation: the derivative by P is ½ log₂(P / M), so that either half is a mean per token of
    values that are constants to first order, and documents are what is drawn.

    Args:
        counted: Both texts.
    """
    before = counted.counts[: counted.calibration]
    after = counted.counts[counted.calibration :]
    own, other = _sum(before), _sum(after)
    js = float(js_bits(own, other))
    dealt = _dealt(counted)
    floor = float(dealt.mean())
    p, q = own / own.sum(), other / other.sum()
    fewer = min(before.shape[0], after.shape[0])
    std_error = None  # of one document nothing is known
    if fewer > 1:
        std_error = math.sqrt(sum(_variance(part, of, p, q) for part, of in ((before, p), (after, q))))
    half = None if std_error is None else t_quantile(fewer - 1) * std_error
    excess = js - floor
    bias = min(floor, max(0.0, _left_out(before, other, js) + _left_out(after, own, js)))
    return Difference(
        js=js,
        floor=floor,
        floor_high=float(np.quantile(dealt, 0.95)),
        p_value=float((1 + np.count_nonzero(dealt >= js)) / (1 + dealt.size)),
        excess=excess,
        std_error=std_error,
        ci_low=None if half is None else excess - half,
        ci_high=None if half is None else js - bias + half,
        n=int(own.sum() + other.sum()),
        n_clusters=fewer,
    )


def js_bits(own: Floats, other: Floats) -> Floats:
    """Jensen-Shannon divergence of two counts of tokens, bits.

    Args:
        own: [..., types], of a positive sum.
        other: [..., types], of a positive sum.

    Returns:
        [...], between 0 and 1.
    """
    p, q = own / own.sum(-1, keepdims=True), other / other.sum(-1, keepdims=True)
    middle = (p + q) / 2
    return np.asarray(((_terms(p, middle) + _terms(q, middle)) / 2).sum(-1))


def _terms(p: Floats, middle: Floats) -> Floats:
    """Terms p log₂(p / m), 0 where p is."""
    return p * np.log2(np.divide(p, middle, out=np.ones_like(middle), where=p > 0))


def _dealt(counted: TokenCounts) -> Floats:
    """The divergence where documents are dealt out at random, in the numbers there are, [permutations]."""
    random = np.random.Generator(np.random.PCG64(_SEED))
    groups, types = counted.counts.shape
    total = _sum(counted.counts)
    step = max(1, _AT_ONCE // max(types, groups))
    parts = []
    for begin in range(0, PERMUTATIONS, step):
        size = min(step, PERMUTATIONS - begin)
        order = random.permuted(np.tile(np.arange(groups), (size, 1)), axis=1)
        mine = (order < counted.calibration).astype(np.float64)
        own = np.asarray(counted.counts.T @ mine.T).T
        parts.append(js_bits(own, total - own))
    return np.concatenate(parts)


def _left_out(part: csr_array, other: Floats, js: float) -> float:
    """How much too large the divergence is for one text being a sample: the jackknife's estimate.

    (K − 1) · (mean of the divergences with one of K parts left out − the divergence itself), Quenouille 1956,
    "Notes on bias in estimation", Biometrika 43.
    """
    groups, types = part.shape
    parts = min(PARTS, groups)
    if parts < 2:
        return 0.0
    place = np.random.Generator(np.random.PCG64(_SEED)).permutation(groups) % parts
    of_part = csr_array((np.ones(groups), (place, np.arange(groups))), shape=(parts, groups)) @ part
    total, step = _sum(part), max(1, _AT_ONCE // types)
    found = [
        js_bits(total - of_part[begin : begin + step].toarray(), other) for begin in range(0, parts, step)
    ]
    return (parts - 1) * (float(np.concatenate(found).mean()) - js)


def _variance(part: csr_array, share: Floats, p: Floats, q: Floats) -> float:
    """Variance of one half of the divergence, by document."""
    middle = (p + q) / 2
    value = np.log2(np.divide(share, middle, out=np.ones_like(share), where=share > 0)) / 2
    clusters = Clusters(np.asarray(part @ value), np.asarray(part.sum(axis=1), dtype=np.float64).ravel())
    return float(clusters.std_error) ** 2


def _sum(counts: csr_array) -> Floats:
    return np.asarray(counts.sum(axis=0), dtype=np.float64).ravel()
