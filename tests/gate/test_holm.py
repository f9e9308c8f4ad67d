"""Naming several failures at once."""

import pytest

from quantflow.gate.holm import corrected, holm, several_failures
from quantflow.gate.result import CriterionResult
from quantflow.gate.verdict import Verdict
from tests.gate.test_gate import gate, pair


def failed(p: float) -> CriterionResult:
    return CriterionResult(
        artifact="int4", name="kl", metric="kl_mean", margin=0, verdict=Verdict.FAIL, reason="", p_fail=p
    )


def test_holm_s_own_example() -> None:
    # Holm 1979 steps down: 3 × .01, 2 × .015, 1 × .02, never below what came before.
    assert holm([0.02, 0.01, 0.015]) == pytest.approx([0.03, 0.03, 0.03])
    assert holm([0.04, 0.001, 0.5]) == pytest.approx([0.08, 0.003, 0.5])
    assert holm([]) == []


def test_two_clear_failures_are_named_together() -> None:
    result = gate(pair(delta=0.06, kl=0.2))
    assert all(c.holm_p is not None and c.holm_p < 0.05 for c in result.criteria)
    assert "Of the 2 failures, all can be named together" in result.reason


def test_failures_that_many_criteria_make_by_chance_are_not_all_named() -> None:
    criteria = corrected([failed(0.0001), failed(0.03), failed(0.04)])
    assert several_failures(criteria).startswith("Of the 3 failures, 1 can be named together")


def test_one_failure_needs_no_correction() -> None:
    assert several_failures(corrected([failed(0.0001)])) == ""
