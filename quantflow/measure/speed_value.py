"""What serving a model takes: how fast it answers and in how much memory, an artifact beside its baseline."""

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

SpeedMetric = Literal["throughput", "time_to_first_token", "time_per_output_token"]
SPEED_METRICS: tuple[SpeedMetric, ...] = get_args(SpeedMetric)
# Beyond what was seen at most: longer requests, fragments, the system's own caches.
HEADROOM = 0.2


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Pace(_Value):
    """How fast one model answered, medians over rounds.

    Attributes:
        throughput: Tokens generated for all requests together, per second.
        time_to_first_token: Seconds until a request's first token, mean over requests sent together.
        time_per_output_token: Seconds between a request's tokens after that, likewise.
    """

    throughput: float
    time_to_first_token: float
    time_per_output_token: float


class SpeedAt(_Value):
    """Baseline and artifact at one number of requests at a time.

    Attributes:
        concurrency: Requests sent together.
        baseline: The baseline's pace.
        artifact: The artifact's pace.
        speedup: Metric → how many times as fast as the baseline the artifact was, one value for each round,
            in which both were timed one right after the other.
        prompt_tokens: Tokens of the prompts, where they differ from entry to entry; None where
            `SpeedValue.prompt_tokens` says it.
    """

    concurrency: int
    baseline: Pace
    artifact: Pace
    speedup: Mapping[SpeedMetric, tuple[float, ...]]
    prompt_tokens: int | None = None

    @property
    def what(self) -> str:
        """What tells it from the other entries, in words."""
        if self.prompt_tokens is None:
            return f"{self.concurrency} at a time"
        return f"prompts of {self.prompt_tokens} tokens"

    def mean_speedup(self, metric: SpeedMetric) -> float:
        """Geometric mean over rounds."""
        return math.exp(fmean(math.log(value) for value in self.speedup[metric]))


class SpeedValue(_Value):
    """How fast baseline and artifact are on one machine.

    Attributes:
        computed_on: The machine, which the figures are of.
        prompt_tokens: Tokens of every prompt (of the longest where they differ), drawn at random: content
            does not matter to a dense model.
        output_tokens: Tokens generated for every request.
        rounds: How often both were timed; who goes first alternates.
        at: One entry for each number of requests at a time, or length of prompt.
    """

    computed_on: str
    prompt_tokens: int
    output_tokens: int
    rounds: int
    at: tuple[SpeedAt, ...]


class MemoryOf(_Value):
    """Memory that the runtime took with one model, bytes.

    Attributes:
        file_bytes: The model's files together.
        idle_bytes: The runtime itself, before it loads a model.
        peak_bytes: Most that it took while it loaded and served, the runtime and its key-value cache
            included: main memory of the process on a CPU, reserved memory of the GPU on a GPU.
        resident_bytes: Main memory that it takes after serving; None where it was not looked at.
        load_seconds: Time that loading took; None likewise.
    """

    file_bytes: int
    idle_bytes: int
    peak_bytes: int
    resident_bytes: int | None = None
    load_seconds: float | None = None

    @property
    def advised_bytes(self) -> int:
        """What to have for it: the peak and a fifth."""
        return math.ceil((1 + HEADROOM) * self.peak_bytes)

    @property
    def file_ratio(self) -> float:
        """Peak over file size."""
        return self.peak_bytes / self.file_bytes


class MemoryValue(_Value):
    """Memory of baseline and artifact under the same requests and with a cache of the same size."""

    device: Literal["cpu", "cuda"]
    baseline: MemoryOf
    artifact: MemoryOf
