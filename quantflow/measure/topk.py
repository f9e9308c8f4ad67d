"""The likeliest tokens of a model at every position, and the lower bound of a KL that two such lists give."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

TOPK_FILE = "topk.safetensors"
NO_TOKEN = -1
# What the probability of all other tokens, one minus a sum, can be off by: log-probabilities come in float32,
# each rounded, and so is the sum over the vocabulary that they were normalized with (float32 has 1.2e-7).
_ROUNDING = 2e-6


class TopK:
    """The likeliest tokens at scored positions, likeliest first.

    Args:
        ids: Token ids, `NO_TOKEN` where a row is shorter, [positions, k].
        logprobs: Their log-probabilities, nats, [positions, k].
    """

    def __init__(self, ids: NDArray[np.int32], logprobs: NDArray[np.float32]) -> None:
        self.ids = ids
        self.logprobs = logprobs

    @classmethod
    def of(cls, ids: Sequence[Sequence[int]], logprobs: Sequence[Sequence[float]]) -> "TopK":
        """Put rows that differ in length into arrays."""
        width = max((len(row) for row in ids), default=0)
        made = cls(
            np.full((len(ids), width), NO_TOKEN, dtype=np.int32),
            np.full((len(ids), width), -np.inf, dtype=np.float32),
        )
        for at, (tokens, values) in enumerate(zip(ids, logprobs, strict=True)):
            made.ids[at, : len(tokens)] = tokens
            made.logprobs[at, : len(values)] = values
        return made

    @property
    def top1(self) -> NDArray[np.int32]:
        """The likeliest token, [positions]."""
        return self.ids[:, 0]


def save_topk(output: Path, topk: TopK) -> None:
    """Write topk.safetensors."""
    (output / TOPK_FILE).write_bytes(save({"ids": topk.ids, "logprobs": topk.logprobs}))


def load_topk(stage_output: Path) -> TopK:
    """Read what `save_topk` wrote."""
    arrays = load_file(stage_output / TOPK_FILE)
    return TopK(arrays["ids"], arrays["logprobs"])


def kl_lower_bound(baseline: TopK, artifact: TopK) -> NDArray[np.float64]:
    """What KL(baseline ‖ artifact) is at least, from the tokens that both lists hold.

    Σ p log(p/q) over those tokens, and one term of the same form for all others together: lumping outcomes
    never raises a divergence (the log-sum inequality; Cover and Thomas, Elements of Information Theory,
    2nd ed., theorem 2.7.1).

    Args:
        baseline: Its likeliest tokens.
        artifact: Its likeliest tokens at the same positions.

    Returns:
        Nats, [positions]; never below zero.
    """
    bound = np.empty(len(baseline.ids), dtype=np.float64)
    for at in range(len(bound)):
        _, own, other = np.intersect1d(baseline.ids[at], artifact.ids[at], return_indices=True)
        shared = baseline.ids[at, own] != NO_TOKEN
        log_p = baseline.logprobs[at, own[shared]].astype(np.float64)
        log_q = artifact.logprobs[at, other[shared]].astype(np.float64)
        p, q = np.exp(log_p), np.exp(log_q)
        rest = _least_rest(*(max(1.0 - float(x.sum()), 0.0) for x in (p, q)))
        bound[at] = max(0.0, float((p * (log_p - log_q)).sum()) + rest)
    return bound


def _least_rest(p: float, q: float) -> float:
    """The least that the term of all other tokens, p·log(p/q), can be if both are known but for rounding.

    Near nothing rounding alone would make a large term of it. It falls with q, and is least at p = q/e.
    """
    q += _ROUNDING
    p = min(max(q / math.e, p - _ROUNDING), p + _ROUNDING)
    return p * math.log(p / q)
