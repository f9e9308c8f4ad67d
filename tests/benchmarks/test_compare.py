"""QuantFlow beside the best of its peers."""

from pathlib import Path

import pytest

from benchmarks.peers.compare import compare, table
from benchmarks.peers.judge import Judged
from benchmarks.peers.measure import Row
from benchmarks.peers.processes import NotFinished, Taken

BASELINE = {"in_domain": 10.0, "out_of_domain": 20.0}


def row(tool: str, method: str, kl: float, seconds: float, peak_bytes: int = 100) -> Row:
    quality = {"in_domain": Judged(kl / 2, 11.0), "out_of_domain": Judged(kl, 22.0)}
    return Row(tool, method, Path(), Taken(seconds, 2 * seconds, peak_bytes), quality)


def unfinished(tool: str, method: str) -> Row:
    return Row(tool, method, Path(), NotFinished("did not finish", "stopped after 600 s"), {})


def test_all_three_ratios_are_to_the_peer_with_the_lowest_kl_that_runs_the_same_algorithm() -> None:
    rows = [
        row("quantflow", "awq", kl=0.18, seconds=30, peak_bytes=50),
        row("slow", "awq", kl=0.20, seconds=300),
        row("fast", "awq", kl=0.30, seconds=10),
        row("other", "rounding", kl=0.01, seconds=1),
        unfinished("late", "awq"),
    ]
    found = compare(rows, BASELINE)
    assert found["awq"]["best"] == "slow"
    assert found["awq"]["kl_vs_best"] == pytest.approx(0.9)
    assert found["awq"]["time_vs_best"] == pytest.approx(0.1)
    assert found["awq"]["memory_vs_best"] == pytest.approx(0.5)
    assert found["peers"]["late"]["awq"]["status"] == "did not finish"


def test_figures_are_out_of_domain() -> None:
    found = compare([row("quantflow", "gptq", kl=0.3, seconds=20)], BASELINE)
    assert (found["gptq"]["kl"], found["gptq"]["perplexity"]) == (0.3, 22.0)
    assert found["gptq"]["kl_in_domain"] == 0.15
    assert found["baseline_perplexity"] == 20.0


def test_without_a_peer_there_is_no_ratio() -> None:
    found = compare([row("quantflow", "awq", kl=0.18, seconds=30), unfinished("late", "awq")], BASELINE)
    assert found["awq"]["kl_vs_best"] is None


def test_two_from_one_calibration_beside_one_alone() -> None:
    rows = [
        row("quantflow", "awq", kl=0.18, seconds=30),
        row("quantflow", "both_awq", kl=0.18, seconds=39),
        row("quantflow", "both_gptq", kl=0.3, seconds=39),
    ]
    assert compare(rows, BASELINE)["both_vs_awq_alone"] == pytest.approx(1.3)


def test_the_table_says_what_did_not_finish() -> None:
    shown = table([row("quantflow", "awq", kl=0.18, seconds=30), unfinished("late", "awq")], BASELINE)
    assert "late awq" in shown
    assert "did not finish: stopped after 600 s" in shown
