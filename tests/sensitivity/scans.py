"""Scans and ladders made by hand, with known answers."""

from collections.abc import Mapping, Sequence

from quantflow.sensitivity.ladder import Rung, UnitLadder
from quantflow.sensitivity.record import ScanControls, ScanRecord, UnitScore


def score(unit: str, kl: float, precision: str = "int4", weights: int = 1000) -> UnitScore:
    """Four bits against sixteen."""
    return UnitScore(
        unit=unit,
        precision=precision,
        kl=kl,
        ci_low=0.9 * kl,
        ci_high=1.1 * kl,
        method="exact",
        kl_by_half=(kl, kl),
        weights=weights,
        bytes_quantized=weights // 2,
        bytes_source=2 * weights,
    )


def scan(scores: Sequence[UnitScore]) -> ScanRecord:
    return ScanRecord(
        method="exact",
        precisions=tuple(dict.fromkeys(score.precision for score in scores)),
        scores=tuple(scores),
        controls=ScanControls(nothing_swapped_kl=0.0, halves_rank_correlation={}),
        forwards=1.0,
        cost_by_step={},
        tokens=100,
    )


def ladder(unit: str, *kl: float, weights: int = 1000, bytes: Sequence[int] = ()) -> UnitLadder:
    """A rung for each KL, and the source's."""
    sizes = bytes or [500 + 750 * place for place in range(len(kl) + 1)]
    names = [f"p{place}" for place in range(len(kl))]
    steps = len(kl)
    return UnitLadder(
        unit,
        weights,
        tuple(
            Rung(name, value, size, round(weights * place / steps))
            for place, (name, value, size) in enumerate(
                zip((*names, "bfloat16"), (*kl, 0.0), sizes, strict=True)
            )
        ),
    )


def two_rungs(kl: Mapping[str, float], weights: int = 1000) -> tuple[UnitLadder, ...]:
    return tuple(ladder(unit, value, weights=weights, bytes=(500, 2000)) for unit, value in kl.items())
