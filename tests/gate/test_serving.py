"""Speed, memory and the lower bound of KL, each against its margin."""

from dataclasses import replace

import numpy as np
import pytest

from quantflow.gate.criteria import CriterionResult
from quantflow.gate.params import MemoryMargins, SpeedMargin
from quantflow.gate.serving import serving_criteria
from quantflow.gate.stage import judge
from quantflow.gate.verdict import Verdict
from quantflow.measure.measurement import RuntimeInfo
from quantflow.measure.serving import Serving
from quantflow.measure.speed_value import MemoryOf, MemoryValue, Pace, SpeedAt, SpeedValue
from tests.gate.test_gate import PARAMS, asked, pair

INFO = RuntimeInfo(name="vllm", version="0.32.0", device="cpu", dtype="bfloat16", options={})


def pace(throughput: float) -> Pace:
    return Pace(throughput=throughput, time_to_first_token=1 / throughput, time_per_output_token=0.01)


def serving(*ratios: float, peak: int = 600) -> Serving:
    """What rounds with these speedups, and an artifact with this peak beside a baseline's 1000, come to."""
    at = SpeedAt(
        concurrency=8,
        baseline=pace(100),
        artifact=pace(130),
        speedup={
            "throughput": ratios,
            "time_to_first_token": tuple(1.0 for _ in ratios),
            "time_per_output_token": tuple(1.0 for _ in ratios),
        },
    )
    speed = SpeedValue(
        computed_on="a machine", prompt_tokens=16, output_tokens=8, rounds=len(ratios), at=(at,)
    )
    memory = MemoryValue(
        device="cpu",
        baseline=MemoryOf(file_bytes=500, idle_bytes=200, peak_bytes=1000),
        artifact=MemoryOf(file_bytes=125, idle_bytes=200, peak_bytes=peak),
    )
    return Serving(runtime=INFO, baseline_runtime=INFO, speed=speed, memory=memory)


def judged_speed(*ratios: float, min_speedup: float = 1.2) -> CriterionResult:
    margin = SpeedMargin(min_speedup=min_speedup, metric="throughput")
    (result,) = serving_criteria("int4", serving(*ratios), margin, None)
    return result


def test_speed_passes_when_even_the_lower_end_is_above_what_was_asked_for() -> None:
    result = judged_speed(1.30, 1.31, 1.29, 1.30, 1.32)
    assert result.verdict is Verdict.PASS
    assert result.delta == pytest.approx(0.304, abs=1e-3)
    assert result.margin == pytest.approx(0.2)
    assert result.ci_low is not None and result.ci_high is not None and result.delta is not None
    assert result.margin < result.ci_low < result.delta < result.ci_high
    assert (result.baseline, result.value) == (100, 130)
    assert (result.n, result.n_clusters) == (5 * 8 * 8, 5)
    assert result.slice == "8 at a time"


def test_speed_fails_when_even_the_upper_end_is_below() -> None:
    assert judged_speed(1.10, 1.11, 1.09, 1.10, 1.12).verdict is Verdict.FAIL


def test_speed_is_inconclusive_when_rounds_disagree_about_it() -> None:
    result = judged_speed(0.9, 1.7, 1.1, 1.5, 1.0)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "more rounds" in result.reason


def test_speed_is_inconclusive_from_fewer_rounds_than_show_a_spread() -> None:
    result = judged_speed(2.0, 2.0)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.ci_low is None


def test_the_interval_of_a_speedup_is_students_t_on_logarithms() -> None:
    # By hand: logs 0, ln 4 have mean ln 2; three of 1, 2, 4 have standard deviation ln 2, t(2, 95 %) = 2.920.
    result = judged_speed(1.0, 2.0, 4.0)
    half = 2.919986 * np.log(2) / np.sqrt(3)
    assert result.delta == pytest.approx(1.0)
    assert result.ci_high == pytest.approx(2 * np.exp(half) - 1, rel=1e-5)
    assert result.ci_low == pytest.approx(2 * np.exp(-half) - 1, rel=1e-5)


@pytest.mark.parametrize(("peak", "verdict"), [(600, Verdict.PASS), (601, Verdict.FAIL)])
def test_memory_is_held_against_the_baselines(peak: int, verdict: Verdict) -> None:
    margins = MemoryMargins(max_ratio=0.6, max_bytes=None)
    (result,) = serving_criteria("int4", serving(1.0, 1.0, 1.0, peak=peak), None, margins)
    assert result.verdict is verdict
    assert result.delta == pytest.approx(peak / 1000 - 1)
    assert "the peak and a fifth" in result.reason


@pytest.mark.parametrize(("peak", "verdict"), [(600, Verdict.PASS), (601, Verdict.FAIL)])
def test_memory_is_held_against_a_number_of_bytes(peak: int, verdict: Verdict) -> None:
    margins = MemoryMargins(max_ratio=None, max_bytes=600)
    (result,) = serving_criteria("int4", serving(1.0, 1.0, 1.0, peak=peak), None, margins)
    assert result.verdict is verdict
    assert (result.value, result.margin) == (peak, 600)


def judged_bound(kl: float, **more: object) -> tuple[CriterionResult, Verdict]:
    """The KL criterion, and the artifact's verdict, where only a lower bound of KL was measured."""
    baseline, measured = pair(kl=kl, kl_spread=0.002)
    bounded = replace(measured, kl=None, kl_at_least=measured.kl)
    result = judge(PARAMS, asked(measured.document), baseline, bounded, **more)  # type: ignore[arg-type]
    return next(c for c in result.criteria if c.name == "kl"), result.verdict


def test_a_lower_bound_of_kl_never_passes_however_small() -> None:
    criterion, verdict = judged_bound(0.0001)
    assert criterion.verdict is verdict is Verdict.INCONCLUSIVE
    assert criterion.metric == "kl_lower_bound"
    assert "never pass" in criterion.reason


def test_a_lower_bound_of_kl_beyond_the_margin_fails() -> None:
    criterion, verdict = judged_bound(0.2)
    assert criterion.verdict is verdict is Verdict.FAIL
    assert criterion.metric == "kl_lower_bound"


def test_kl_measured_in_another_runtime_passes_beside_a_bound() -> None:
    exact = pair(kl=0.01)[1]
    criterion, verdict = judged_bound(0.0001, kl_measured=exact)
    assert criterion.verdict is verdict is Verdict.PASS
    assert criterion.metric == "kl_mean"


def test_kl_of_other_positions_is_not_taken() -> None:
    criterion, verdict = judged_bound(0.0001, kl_measured=pair(documents=59)[1])
    assert criterion.verdict is verdict is Verdict.ERROR


def test_no_kl_at_all_is_an_error_and_not_a_pass() -> None:
    baseline, measured = pair()
    result = judge(PARAMS, asked(measured.document), baseline, replace(measured, kl=None))
    assert result.verdict is Verdict.ERROR


def test_an_artifact_that_is_too_slow_does_not_pass_on_its_quality() -> None:
    baseline, measured = pair(delta_spread=0.001)
    margin = SpeedMargin(min_speedup=2.0, metric="throughput")
    slow = serving_criteria("int4", serving(1.3, 1.3, 1.31), margin, None)
    result = judge(PARAMS, asked(measured.document), baseline, measured, others=slow)
    assert [c.verdict for c in result.criteria] == [Verdict.PASS, Verdict.PASS, Verdict.FAIL]
    assert result.verdict is Verdict.FAIL
