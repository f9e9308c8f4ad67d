"""From sums by window to the scores of a record, with intervals and what shows that they can be believed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quantflow.sensitivity.measured import Key
from quantflow.sensitivity.record import ScoreMethod, UnitScore
from quantflow.sensitivity.text import ScanText


@dataclass(frozen=True)
class UnitSize:
    """A unit's weights.

    Attributes:
        weights: Elements.
        source_bytes: Bytes in the source's dtype.
    """

    weights: int
    source_bytes: int


@dataclass(frozen=True)
class Found:
    """One score and how it was found.

    Attributes:
        kl: Nats per token.
        interval: Its 90 % interval; None where there is none.
        halves: The same on each half of the text.
        method: By what.
    """

    kl: float
    interval: tuple[float, float] | None
    halves: tuple[float, float]
    method: ScoreMethod

    def times(self, factor: float) -> "Found":
        """The same on another scale."""
        interval = None if self.interval is None else (factor * self.interval[0], factor * self.interval[1])
        return Found(
            factor * self.kl, interval, (factor * self.halves[0], factor * self.halves[1]), self.method
        )


def found_by(text: ScanText, sums: NDArray[np.float64], method: ScoreMethod) -> Found:
    """A score from sums by window.

    Args:
        text: The text.
        sums: Nats summed over the scored positions of each window, [windows].
        method: How they were found.
    """
    return Found(text.mean(sums), text.interval(sums), text.halves(sums), method)


def unit_scores(
    found: Mapping[Key, Found],
    sizes: Mapping[str, UnitSize],
    bytes_quantized: Mapping[Key, int],
    confirmed: Mapping[Key, Found],
) -> tuple[UnitScore, ...]:
    """The scores of a record, in the order of `found`.

    Args:
        found: Unit and precision → its score on calibration text.
        sizes: Unit → its weights.
        bytes_quantized: Unit and precision → bytes of its weights in it.
        confirmed: Unit and precision → its score on selection text, where there is one.
    """
    scores = []
    for key, own in found.items():
        other = confirmed.get(key)
        low, high = own.interval or (None, None)
        other_low, other_high = (None, None) if other is None else other.interval or (None, None)
        scores.append(
            UnitScore(
                unit=key[0],
                precision=key[1],
                kl=own.kl,
                ci_low=low,
                ci_high=high,
                method=own.method,
                kl_by_half=own.halves,
                weights=sizes[key[0]].weights,
                bytes_quantized=bytes_quantized[key],
                bytes_source=sizes[key[0]].source_bytes,
                kl_selection=None if other is None else other.kl,
                selection_ci_low=other_low,
                selection_ci_high=other_high,
            )
        )
    return tuple(scores)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's correlation of two rankings; None where one of them does not rank."""
    from scipy.stats import spearmanr

    if len(first) < 3 or len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return float(spearmanr(first, second).statistic)


def halves_correlation(scores: Sequence[UnitScore]) -> float | None:
    """Spearman's correlation between the scores on both halves of the text."""
    return rank_correlation([s.kl_by_half[0] for s in scores], [s.kl_by_half[1] for s in scores])


def selection_correlation(scores: Sequence[UnitScore]) -> float | None:
    """Spearman's correlation between the scores on calibration and on selection text."""
    both = [(s.kl, s.kl_selection) for s in scores if s.kl_selection is not None]
    return rank_correlation([kl for kl, _ in both], [other for _, other in both])
