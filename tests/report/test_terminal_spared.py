"""What was spared and why, on the terminal."""

import io
from typing import Any

import pytest
from rich.console import Console

from quantflow.gate.verdict import Verdict
from quantflow.report.model import Report
from quantflow.report.terminal_spared import MOST_ROWS, spared_view
from quantflow.sensitivity.assignment import AssignmentRecord, Decision, MixKl, NextUnit
from tests.report.samples import report as sample


def decision(number: int, spared: bool) -> Decision:
    return Decision(
        unit=f"model.layers.{number}.down",
        precision="bfloat16" if spared else "awq-w4-g64-asym",
        spared=spared,
        reason=f"{'Spared' if spared else 'Quantized'}: its KL of 0.05 is rank {number + 1} of 30; within "
        "10 % of the weights nothing else takes away more.",
        kl_quantized=0.05 - number / 1000,
        kl=0.0 if spared else 0.05,
        weights=1000,
        bytes_quantized=500,
        bytes=2_000_500 if spared else 500,
    )


def record(spared: int) -> AssignmentRecord:
    def mix(units: int, kl: float) -> MixKl:
        return MixKl(
            units=units,
            spared=units / 30,
            bytes=10**8 + units * 2 * 10**6,
            kl=kl,
            sum_of_parts=kl,
            additivity_ratio=1.1,
        )

    return AssignmentRecord(
        artifact="int4",
        policy="budget",
        settings={"max_spared": 0.1},
        ladder=("awq-w4-g64-asym", "bfloat16"),
        decisions=tuple(decision(number, number < spared) for number in range(30)),
        frontier=(),
        plain=mix(0, 0.25),
        mix=mix(spared, 0.25 if spared == 0 else 0.125),
        next=NextUnit(unit="model.layers.9.qkv", precision="bfloat16", kl=0.004, bytes=1_700_000),
    )


def shown(report: Report, width: int) -> str:
    file = io.StringIO()
    view = spared_view(report, width)
    assert view is not None
    Console(file=file, width=width).print(view)
    return " ".join(file.getvalue().split())


def with_assignment(found: AssignmentRecord) -> Report:
    plain = sample(Verdict.PASS, Verdict.PASS)
    first, *rest = plain.artifacts
    changed: dict[str, Any] = {"artifacts": (first.model_copy(update={"assignment": found}), *rest)}
    return plain.model_copy(update=changed)


@pytest.mark.parametrize("width", [60, 120, 200])
def test_units_costs_and_reasons_are_in_one_table_with_what_they_came_to_below(width: int) -> None:
    text = shown(with_assignment(record(3)), width)
    assert "model.layers.2.down" in text
    assert "model.layers.3.down" not in text
    for part in ("2 MB", "rank 3 of 30", "3 of 30 units spared (10.0 % of the weights, 6 MB more)"):
        assert part in text
    assert "0.25 → 0.125, 1.1 × the sum of its parts" in text.replace("1.10", "1.1")
    assert "next would be model.layers.9.qkv, which takes away 0.004 for 1.7 MB." in text
    assert "…" not in text


def test_nothing_spared_is_said_and_no_assignment_says_nothing() -> None:
    assert "nothing is spared; KL on the selection documents is 0.25" in shown(
        with_assignment(record(0)), 120
    )
    assert spared_view(sample(Verdict.PASS, Verdict.PASS), 120) is None


def test_remedies_alone_are_not_taken_for_the_artifact_as_it_came() -> None:
    found = record(0)
    better = found.model_copy(update={"mix": found.mix.model_copy(update={"kl": 0.004})})
    text = shown(with_assignment(better), 200)
    assert "nothing is spared; KL on the selection documents is 0.004, 0.25 without remedies" in text


def test_of_many_units_those_that_cost_most_are_shown_and_the_rest_is_counted() -> None:
    text = shown(with_assignment(record(MOST_ROWS + 2)), 200)
    assert "2 spared units more are in report.json" in text
    assert f"model.layers.{MOST_ROWS - 1}.down" in text
    assert f"model.layers.{MOST_ROWS}.down" not in text
