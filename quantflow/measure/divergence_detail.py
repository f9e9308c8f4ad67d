"""Where distributions diverge: by document, by how sure the baseline is, and at which tokens most."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from quantflow.data.windows import Windows
from quantflow.measure.measurement import Samples

CONFIDENCE_EDGES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
"""Ends of the ranges of the baseline's largest probability: a change where it was sure is a change of what is
said, one where it was not may be of no matter."""

WORST = 10
"""Positions that are listed: enough to see a pattern, few enough to read."""

CONTEXT = 24
"""Tokens before such a position that are shown."""


class ConfidenceRange(BaseModel):
    """Divergence where the baseline is about as sure.

    Attributes:
        low: Smallest probability that it gives to its likeliest token.
        high: Largest one.
        positions: Positions.
        kl_mean: Mean KL there, nats per token.
        top1_agreement: Share of them at which both find the same token likeliest.
        share_of_kl: Share of all KL that they make up.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: float
    high: float
    positions: int
    kl_mean: float
    top1_agreement: float
    share_of_kl: float


class WorstPosition(BaseModel):
    """A position at which the distributions diverge most.

    Attributes:
        document: The document's name.
        slice: Its slice.
        kl: KL there, nats.
        confidence: The probability that the baseline gives to its likeliest token.
        same_top1: Whether both find the same token likeliest.
        target: Id of the token that came; None where text is not told.
        context: Ids of the tokens before it, the latest last; empty where text is not told.
        likeliest_before: Id of the token that the baseline finds likeliest; None where text is not told or
            the runtime does not tell.
        likeliest: Id of the one that the artifact finds likeliest, likewise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    document: str
    slice: str
    kl: float
    confidence: float
    same_top1: bool
    target: int | None
    context: tuple[int, ...]
    likeliest_before: int | None = None
    likeliest: int | None = None


def by_confidence(measured: Samples) -> tuple[ConfidenceRange, ...]:
    """Divergence by how sure the baseline is; empty where that or the exact KL was not measured.

    Args:
        measured: Samples of an artifact.
    """
    if measured.kl is None or measured.top1 is None or measured.confidence is None:
        return ()
    total = float(measured.kl.sum())
    ranges = []
    of = np.clip(np.searchsorted(CONFIDENCE_EDGES, measured.confidence, side="right") - 1, 0, _LAST)
    for at, (low, high) in enumerate(pairwise(CONFIDENCE_EDGES)):
        inside: NDArray[np.bool_] = of == at
        if inside.any():
            kl = measured.kl[inside]
            ranges.append(
                ConfidenceRange(
                    low=low,
                    high=high,
                    positions=int(kl.size),
                    kl_mean=float(kl.mean()),
                    top1_agreement=float(measured.top1[inside].mean()),
                    share_of_kl=float(kl.sum()) / total if total > 0 else 0.0,
                )
            )
    return tuple(ranges)


_LAST = len(CONFIDENCE_EDGES) - 2


def worst_positions(
    measured: Samples, windows: Windows, names: Sequence[str], slices: Sequence[str]
) -> tuple[WorstPosition, ...]:
    """The positions of the largest KL, no two of one document, the worst first.

    Args:
        measured: Samples of an artifact.
        windows: The evaluation windows that it was measured on.
        names: Name of each document.
        slices: Slice of each document.
    """
    if measured.kl is None or measured.top1 is None or measured.confidence is None:
        return ()
    starts = windows.offsets[:-1] + windows.scored_from
    begins = np.cumsum(windows.scored_counts) - windows.scored_counts
    found: dict[int, WorstPosition] = {}
    for position in np.argsort(-measured.kl, kind="stable"):
        document = int(measured.document[position])
        if document in found:
            continue
        window = int(np.searchsorted(begins, position, side="right")) - 1
        token = int(starts[window] + position - begins[window])
        first = max(int(windows.offsets[window]), token - CONTEXT)
        found[document] = WorstPosition(
            document=names[document],
            slice=slices[document],
            kl=float(measured.kl[position]),
            confidence=float(measured.confidence[position]),
            same_top1=bool(measured.top1[position]),
            target=int(windows.tokens[token]),
            context=tuple(windows.tokens[first:token].tolist()),
            likeliest_before=_at(measured.likeliest_before, position),
            likeliest=_at(measured.likeliest, position),
        )
        if len(found) == WORST:
            break
    return tuple(found.values())


def _at(values: NDArray[np.int32] | None, position: int) -> int | None:
    return None if values is None else int(values[position])
