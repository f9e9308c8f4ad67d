"""Speed and memory: baseline and artifact in turns, every ratio paired, figures from timings by hand."""

import json
from pathlib import Path

import pytest

from quantflow.formats.assembly import Assembly, save_assembly
from quantflow.measure.params import SpeedParams
from quantflow.measure.serving import load_serving
from quantflow.measure.speed import draw_prompts, pace_of, run, speedup, time_in_turns
from quantflow.measure.speed_value import MemoryOf, Pace
from quantflow.runtime.vllm import Timing
from tests.measure.test_served import checkpoint_of
from tests.reporting import RecordingReporter
from tests.runtime.faking import PARAMS, fake_environment, fake_model

SPEED = SpeedParams(
    serving=PARAMS, batch_tokens=64, concurrency=(1, 3), prompt_tokens=8, output_tokens=4, rounds=3
)


def test_a_pace_is_what_a_stopwatch_would_say() -> None:
    pace = pace_of(Timing(first=(0.5, 1.0), last=(1.5, 2.0), tokens=5))
    assert pace.time_to_first_token == pytest.approx(0.75)
    assert pace.time_per_output_token == pytest.approx(0.25)
    assert pace.throughput == pytest.approx(2 * 5 / 2.0)


def test_faster_is_more_than_one_in_every_metric() -> None:
    slow = Pace(throughput=10, time_to_first_token=1.0, time_per_output_token=0.1)
    fast = Pace(throughput=15, time_to_first_token=0.5, time_per_output_token=0.05)
    assert speedup("throughput", slow, fast) == pytest.approx(1.5)
    assert speedup("time_to_first_token", slow, fast) == pytest.approx(2)
    assert speedup("time_per_output_token", slow, fast) == pytest.approx(2)


class Stopwatch:
    """A session that writes down when it was asked."""

    def __init__(self, name: str, log: list[tuple[str, int, object]], seconds: float) -> None:
        self.name, self.log, self.seconds = name, log, seconds

    def time(self, prompts: tuple[tuple[int, ...], ...], tokens: int) -> Timing:
        self.log.append((self.name, len(prompts), prompts))
        first = tuple(self.seconds for _ in prompts)
        return Timing(first, tuple(2 * f for f in first), tokens)


def test_both_take_turns_on_the_same_prompts_and_who_is_first_alternates(
    reporter: RecordingReporter,
) -> None:
    log: list[tuple[str, int, object]] = []
    sessions = {name: Stopwatch(name, log, s) for name, s in (("baseline", 1.0), ("artifact", 0.5))}
    speed = time_in_turns(SPEED, sessions, 400, reporter)  # type: ignore[arg-type]
    assert [name for name, count, _ in log if count == 1] == [
        *("artifact", "baseline"),
        *("baseline", "artifact"),
    ] * 2
    assert all(one[2] == other[2] for one, other in zip(log[::2], log[1::2], strict=True))
    assert len({str(prompts) for _, _, prompts in log}) == len(log) // 2
    assert [at.concurrency for at in speed.at] == [1, 3]
    # The round that warms up is not counted.
    assert speed.at[0].speedup["throughput"] == pytest.approx([2.0, 2.0, 2.0])
    assert speed.at[0].mean_speedup("throughput") == pytest.approx(2.0)
    assert reporter.progress["Timing requests"] == (16, 16)


def test_prompts_are_drawn_by_seed() -> None:
    assert draw_prompts(1, 2, 5, 400) == draw_prompts(1, 2, 5, 400)
    assert draw_prompts(1, 2, 5, 400) != draw_prompts(2, 2, 5, 400)
    assert all(0 <= token < 7 for prompt in draw_prompts(3, 4, 50, 7) for token in prompt)


def test_the_stage_finds_speed_and_memory_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reporter: RecordingReporter
) -> None:
    fake_environment(tmp_path / "cache", monkeypatch)
    source = checkpoint_of(tmp_path / "source", fake_model(tmp_path / "model"))
    artifact = fake_model(tmp_path / "assemble" / "artifact", artifact=True)
    save_assembly(tmp_path / "assemble", Assembly(artifact, "int4", "awq", 1000, 900, 4000, 12, ()))
    output = tmp_path / "output"
    output.mkdir()
    run(SPEED, {"source": source, "assemble": tmp_path / "assemble"}, output, reporter)
    serving = load_serving(output)
    assert serving.runtime.name == serving.baseline_runtime.name == "vllm"
    assert serving.memory.artifact.file_bytes == 1000
    assert serving.memory.artifact.peak_bytes >= serving.memory.artifact.idle_bytes > 0
    # The stand-in sleeps twice as long for the baseline.
    assert serving.speed.at[0].mean_speedup("time_per_output_token") > 1
    assert "cores" in serving.speed.computed_on
    assert json.loads((output / "serving.json").read_text())["memory"]["device"] == "cpu"


def test_the_advice_is_the_peak_and_a_fifth() -> None:
    memory = MemoryOf(file_bytes=1_000, idle_bytes=500, peak_bytes=2_500)
    assert memory.advised_bytes == 3_000
    assert memory.file_ratio == 2.5
