"""The criteria of serving: how much faster an artifact is than its baseline, and in how much memory."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from quantflow.gate.params import MemoryMargins, SpeedMargin
from quantflow.gate.result import CriterionResult
from quantflow.gate.statistics import t_quantile
from quantflow.gate.verdict import Verdict
from quantflow.measure.serving import Serving
from quantflow.measure.speed_value import MemoryOf, MemoryValue, SpeedAt, SpeedValue

_METRICS = {
    "throughput": "tokens per second",
    "time_to_first_token": "seconds to the first token",
    "time_per_output_token": "seconds per token after the first",
}
# Below this the spread of a ratio cannot be told from that of so few rounds.
MIN_ROUNDS = 3


def serving_criteria(
    artifact: str, serving: Serving, speed: SpeedMargin | None, memory: MemoryMargins | None
) -> tuple[CriterionResult, ...]:
    """Judge what the recipe sets margins for.

    Args:
        artifact: Name of the artifact.
        serving: What was measured.
        speed: The margin of speed; None where there is none.
        memory: The margins of memory; None where there are none.
    """
    results: list[CriterionResult] = []
    if speed is not None:
        results += [_speed(artifact, serving.speed, at, speed) for at in serving.speed.at]
    if memory is not None and memory.max_ratio is not None:
        results.append(_memory_ratio(artifact, serving.memory, memory.max_ratio))
    if memory is not None and memory.max_bytes is not None:
        results.append(_memory_bytes(artifact, serving.memory, memory.max_bytes))
    return tuple(results)


def _speed(artifact: str, speed: SpeedValue, at: SpeedAt, margin: SpeedMargin) -> CriterionResult:
    """Judge the geometric mean of the rounds' paired ratios, with a t interval of their logarithms."""
    ratios = at.speedup[margin.metric]
    mean, low, high = _ratio_interval(ratios)
    few = len(ratios) < MIN_ROUNDS
    if few or low <= margin.min_speedup <= high:
        verdict = Verdict.INCONCLUSIVE
    else:
        verdict = Verdict.PASS if low > margin.min_speedup else Verdict.FAIL
    what = f"{_METRICS[margin.metric]}, {at.what}"
    measured = f"{mean:.3g} times as fast as the baseline ({what}; 90 % interval {low:.3g} to {high:.3g})"
    asked = f"the {margin.min_speedup:.4g} asked for"
    if few:
        reason = f"{measured}, but {len(ratios)} rounds are too few to judge {asked}: take {MIN_ROUNDS}."
    elif verdict is Verdict.PASS:
        reason = f"{measured}: even the lower end is above {asked}."
    elif verdict is Verdict.FAIL:
        reason = f"{measured}: even the upper end is below {asked}."
    else:
        reason = f"{measured}: {asked} is within the interval; more rounds, or a quieter machine, narrow it."
    return CriterionResult(
        artifact=artifact,
        name="speed",
        slice=at.what,
        metric=f"speedup_{margin.metric}",
        baseline=getattr(at.baseline, margin.metric),
        value=getattr(at.artifact, margin.metric),
        delta=mean - 1,
        ci_low=None if few else low - 1,
        ci_high=None if few else high - 1,
        margin=margin.min_speedup - 1,
        n=len(ratios) * at.concurrency * speed.output_tokens,
        n_clusters=len(ratios),
        verdict=verdict,
        reason=reason,
    )


def _ratio_interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    logs = [math.log(ratio) for ratio in ratios]
    mean = fmean(logs)
    if len(logs) < 2:
        return math.exp(mean), 0.0, math.inf
    half = t_quantile(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def _memory_ratio(artifact: str, memory: MemoryValue, max_ratio: float) -> CriterionResult:
    before, after = memory.baseline.peak_bytes, memory.artifact.peak_bytes
    ratio = after / before
    passes = ratio <= max_ratio
    reason = (
        f"{_sizes(memory)}, {ratio:.3g} of the baseline: {'within' if passes else 'more than'} the "
        f"{max_ratio:.4g} allowed. {_advice(memory.artifact)}"
    )
    return CriterionResult(
        artifact=artifact,
        name="memory",
        metric="memory_ratio",
        baseline=before,
        value=after,
        delta=ratio - 1,
        margin=max_ratio - 1,
        n=1,
        verdict=Verdict.PASS if passes else Verdict.FAIL,
        reason=reason,
    )


def _memory_bytes(artifact: str, memory: MemoryValue, max_bytes: int) -> CriterionResult:
    peak = memory.artifact.peak_bytes
    passes = peak <= max_bytes
    reason = (
        f"{_sizes(memory)}: {'within' if passes else 'more than'} the {max_bytes / 1e9:.3g} GB allowed. "
        f"{_advice(memory.artifact)}"
    )
    return CriterionResult(
        artifact=artifact,
        name="memory",
        metric="memory_bytes",
        baseline=memory.baseline.peak_bytes,
        value=peak,
        delta=peak,
        margin=max_bytes,
        n=1,
        verdict=Verdict.PASS if passes else Verdict.FAIL,
        reason=reason,
    )


def _sizes(memory: MemoryValue) -> str:
    place = "main memory" if memory.device == "cpu" else "GPU memory"
    return (
        f"The runtime took {memory.artifact.peak_bytes / 1e9:.3g} GB of {place} at most, "
        f"{memory.baseline.peak_bytes / 1e9:.3g} GB with the baseline"
    )


def _advice(artifact: MemoryOf) -> str:
    return (
        f"Its files are {artifact.file_bytes / 1e9:.3g} GB; have {artifact.advised_bytes / 1e9:.3g} GB for "
        "it, the peak and a fifth."
    )
