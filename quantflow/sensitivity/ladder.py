"""What a unit can be stored as, from the artifact's own precision to the source's, and what each costs."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from quantflow.errors import QuantizationError
from quantflow.sensitivity.record import ScanRecord, UnitScore

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Of a weight in the dtypes that units which stay as they are can be stored in."""


@dataclass(frozen=True)
class Rung:
    """A unit in one precision.

    Attributes:
        precision: Id of a scheme, or the source's dtype.
        kl: What it costs by itself, nats per token; 0 in the source's dtype.
        bytes: That its weights take of the artifact, scales and zero points included.
        spared: Weights of the unit that count as spared. Every rung gives up an equal part of what the
            artifact's own precision saves: from W8A8 to weight-only INT8, which keeps the size and loses the
            arithmetic, half of them.
    """

    precision: str
    kl: float
    bytes: int
    spared: int


@dataclass(frozen=True)
class UnitLadder:
    """A unit's rungs.

    Attributes:
        unit: Full name, e.g. `model.layers.0.qkv`.
        weights: Elements of its weights.
        rungs: The artifact's own precision first, the source's dtype last; one alone where the recipe leaves
            no choice.
    """

    unit: str
    weights: int
    rungs: tuple[Rung, ...]

    @property
    def own(self) -> Rung:
        """As the artifact stores it where nothing is spared."""
        return self.rungs[0]


def ladders(
    scan: ScanRecord, precisions: Sequence[str], source: str, shared: Collection[str] = ()
) -> tuple[UnitLadder, ...]:
    """The ladder of every unit of a scan, in the order of the model.

    Args:
        scan: The scores.
        precisions: The artifact's own first, then those that it may fall back to.
        source: What units that stay as they are are stored in, e.g. `bfloat16`: the last rung.
        shared: Units whose weights, if they stay as they are, the artifact has for something else anyway: a
            head that is the embedding as well.

    Raises:
        QuantizationError: A unit has no score in one of the precisions, or one that is no finite number.
    """
    by_unit: dict[str, dict[str, UnitScore]] = {}
    for score in scan.scores:
        by_unit.setdefault(score.unit, {})[score.precision] = score
    found = []
    for unit, scores in by_unit.items():
        if precisions[0] not in scores:
            continue  # not one that this artifact quantizes, such as the head
        missing = [precision for precision in precisions if precision not in scores]
        if missing:
            raise QuantizationError(f"the scan has no score of it in {missing[0]}", where=unit)
        size = 0 if unit in shared else BYTES[source]
        found.append(_ladder([scores[precision] for precision in precisions], source, size))
    return tuple(found)


def fixed(units: Sequence[UnitLadder], *, quantized: Collection[str]) -> tuple[UnitLadder, ...]:
    """Leave some units no choice: they are quantized as the artifact is."""
    return tuple(replace(unit, rungs=unit.rungs[:1]) if unit.unit in quantized else unit for unit in units)


def _ladder(scores: Sequence[UnitScore], source: str, size: int) -> UnitLadder:
    first, steps = scores[0], len(scores)
    rungs = [
        Rung(score.precision, _kl(score), score.bytes_quantized, round(first.weights * place / steps))
        for place, score in enumerate(scores)
    ]
    last = Rung(source, 0.0, size * first.weights, first.weights)
    return UnitLadder(first.unit, first.weights, (*rungs, last))


def _kl(score: UnitScore) -> float:
    """A score; what rounding left below zero is zero."""
    if not math.isfinite(score.kl):
        raise QuantizationError(
            f"its score in {score.precision} is {score.kl}, which nothing can be decided by",
            where=score.unit,
            hint="Values overflow where it is quantized: name it in sensitivity.keep, or look at the model.",
        )
    return max(0.0, score.kl)
