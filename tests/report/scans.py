"""Scans and assignments to render: figures are invented, shapes are those of a real run."""

import math

from quantflow.gate.verdict import Verdict
from quantflow.sensitivity.assignment import (
    AssignmentRecord,
    Decision,
    FrontierPoint,
    MixKl,
    NextUnit,
    RoundCriterion,
    SearchRound,
)
from quantflow.sensitivity.record import ScanControls, ScanRecord, UnitScore

KINDS = ("qkv", "o", "gate_up", "down")
WEIGHTS = 884_736


def units(blocks: int) -> list[str]:
    return [f"model.layers.{block}.{kind}" for block in range(blocks) for kind in KINDS] + ["lm_head"]


def kl_of(index: int) -> float:
    """Uneven, reproducible, over three orders of magnitude."""
    return 2e-4 * math.exp(5 * (0.5 + 0.5 * math.sin(1.7 * index)) ** 3)


def scan(blocks: int) -> ScanRecord:
    scores = tuple(
        UnitScore(
            unit=unit,
            precision="int4",
            kl=kl_of(index),
            ci_low=0.9 * kl_of(index),
            ci_high=1.1 * kl_of(index),
            method="exact" if index % 3 else "fisher",
            kl_by_half=(0.97 * kl_of(index), 1.03 * kl_of(index)),
            weights=WEIGHTS,
            bytes_quantized=WEIGHTS // 2,
            bytes_source=2 * WEIGHTS,
        )
        for index, unit in enumerate(units(blocks))
    )
    return ScanRecord(
        method="auto",
        precisions=("int4",),
        scores=scores,
        controls=ScanControls(nothing_swapped_kl=1.2e-9, halves_rank_correlation={"int4": 0.981}),
        forwards=9.6,
        cost_by_step={"fisher": 2.6, "exact": 7.0},
        tokens=16384,
    )


def mix(number: int, kl: float, of: int) -> MixKl:
    return MixKl(
        units=number,
        spared=number / of,
        bytes=115_000_000 + number * WEIGHTS,
        kl=kl,
        sum_of_parts=kl / 1.09,
        additivity_ratio=1.09,
    )


def assignment(blocks: int) -> AssignmentRecord:
    """The two costliest units spared by a search of two rounds."""
    names = units(blocks)
    order = sorted(range(len(names)), key=lambda index: -kl_of(index))
    spared = set(order[:2])
    decisions = tuple(
        Decision(
            unit=unit,
            precision="float16" if index in spared else "int4",
            spared=index in spared,
            reason="It takes away most KL per weight of those that were left."
            if index in spared
            else "The budget is better spent elsewhere.",
            kl_quantized=kl_of(index),
            kl=0.0 if index in spared else kl_of(index),
            weights=WEIGHTS,
            bytes_quantized=WEIGHTS // 2,
            bytes=2 * WEIGHTS if index in spared else WEIGHTS // 2,
        )
        for index, unit in enumerate(names)
    )
    total = sum(map(kl_of, range(len(names))))
    points = [FrontierPoint(unit="", precision="", units=0, bytes=115_000_000, spared=0.0, kl=total)]
    for number, index in enumerate(order[: min(24, len(names))], 1):
        total -= kl_of(index)
        points.append(
            FrontierPoint(
                unit=names[index],
                precision="float16",
                units=number,
                bytes=115_000_000 + number * 3 * WEIGHTS // 2,
                spared=number / len(names),
                kl=max(total, 0.0),
            )
        )
    plain, chosen = mix(0, 0.424, len(names)), mix(2, 0.211, len(names))
    criterion = RoundCriterion(
        name="kl",
        metric="kl_mean",
        slice="all",
        delta=0.424,
        ci_low=0.40,
        ci_high=0.45,
        bound=0.46,
        margin=0.25,
        verdict=Verdict.FAIL,
        holds=False,
    )
    held = criterion.model_copy(
        update={"delta": 0.211, "bound": 0.23, "verdict": Verdict.PASS, "holds": True}
    )
    added = tuple(names[index] for index in order[:2])
    return AssignmentRecord(
        artifact="int4-awq",
        policy="search",
        settings={"max_spared": 0.1},
        ladder=("int4", "float16"),
        decisions=decisions,
        frontier=tuple(points),
        plain=plain,
        mix=chosen,
        next=NextUnit(unit=names[order[2]], precision="float16", kl=kl_of(order[2]), bytes=3 * WEIGHTS // 2),
        rounds=(
            SearchRound(number=0, added=(), mix=plain, criteria=(criterion,), holds=False, best=False),
            SearchRound(number=1, added=added, mix=chosen, criteria=(held,), holds=True, best=True),
        ),
        stopped_by="holds",
    )
