"""What was measured of a model: figures and the per-position samples behind them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from safetensors.numpy import load_file, save

from quantflow.measure.generated import GenerationValue
from quantflow.measure.speed_value import MemoryValue, SpeedValue
from quantflow.tasks.value import RecoveryValue, TaskValue

MEASUREMENT_FILE = "measurement.json"
SAMPLES_FILE = "samples.safetensors"
_OPTIONAL = ("kl", "top1", "kl_at_least", "target", "confidence", "likeliest_before", "likeliest")


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RuntimeInfo(_Value):
    """How a model was run to be measured.

    Attributes:
        name: The runtime, e.g. `torch`.
        version: Its version.
        device: `cpu` or `cuda`.
        dtype: What it computed in.
        options: What else was pinned and could change a figure.
    """

    name: str
    version: str
    device: str
    dtype: str
    options: Mapping[str, str]


class PerplexityValue(_Value):
    """Perplexity over scored positions: exp of their mean negative log-likelihood.

    Attributes:
        value: exp(nll).
        nll: Mean negative log-likelihood, nats per token.
        tokens: Scored positions.
        documents: Documents they come from.
        baseline: The baseline's perplexity at the same positions, where those are not all it was measured at.
    """

    value: float
    nll: float
    tokens: int
    documents: int
    baseline: float | None = None


class KlValue(_Value):
    """KL(baseline ‖ artifact) of the next-token distributions, nats per token, over scored positions.

    Attributes:
        at_least: Whether all but `top1_agreement` are lower bounds, from the likeliest tokens alone.
        mean: Mean.
        median: Median; the following are the 90 %, 95 %, 99 % and 99.9 % quantiles and the largest.
        top1_agreement: Share of positions at which both find the same token most likely.
    """

    mean: float
    median: float
    p90: float
    p95: float
    p99: float
    p999: float
    max: float
    top1_agreement: float
    at_least: bool = False


class SliceValue(_Value):
    """The figures of one slice of the evaluation documents.

    Attributes:
        perplexity: As in `PerplexityValue`, of this slice's positions.
        kl_mean: Mean KL in nats per token, or its lower bound where that is all there is; None for the
            baseline.
        tokens: Scored positions.
        documents: Documents they come from.
    """

    perplexity: float
    kl_mean: float | None
    tokens: int
    documents: int


class Measurement(_Value):
    """Everything measured of one model on the evaluation documents.

    Attributes:
        runtime: How it was run.
        perplexity: Over all scored positions.
        kl: Against the baseline; None for the baseline itself.
        slices: The same by slice, sorted by name.
        kl_runtime: How KL was measured, where not in `runtime`.
        speed: Beside the baseline's; None for the baseline itself and where it was not measured.
        memory: Beside the baseline's, likewise.
        tasks: Task → scores beside the baseline's.
        recovery: How much of the tasks' scores is kept in all; None where there is none to tell by.
        generation: What was generated, beside the baseline's; None where nothing was.
    """

    runtime: RuntimeInfo
    perplexity: PerplexityValue
    kl: KlValue | None
    slices: Mapping[str, SliceValue]
    kl_runtime: RuntimeInfo | None = None
    speed: SpeedValue | None = None
    memory: MemoryValue | None = None
    tasks: Mapping[str, TaskValue] = {}
    recovery: RecoveryValue | None = None
    generation: GenerationValue | None = None


@dataclass(frozen=True)
class Samples:
    """The values behind a measurement, one per scored position, in the order of the evaluation windows.

    Attributes:
        document: Index of the position's document in documents.json, [positions].
        nll: Negative log-likelihood of the token that came, nats, [positions].
        kl: KL(baseline ‖ artifact), nats, [positions]; None for the baseline.
        top1: Whether both find the same token most likely, [positions]; None for the baseline.
        kl_at_least: A lower bound of `kl` where the runtime gives no more, nats, [positions].
        target: Id of the token that came, [positions]; by it two models' samples are known to be of the same
            text.
        confidence: Probability of the token that the baseline finds likeliest, [positions]; None for the
            baseline and where the runtime does not tell.
        likeliest_before: Id of the token that the baseline finds likeliest, [positions]; likewise.
        likeliest: Id of the one that the artifact finds likeliest, [positions]; likewise.
    """

    document: NDArray[np.int32]
    nll: NDArray[np.float64]
    kl: NDArray[np.float64] | None = None
    top1: NDArray[np.bool_] | None = None
    kl_at_least: NDArray[np.float64] | None = None
    target: NDArray[np.int32] | None = None
    confidence: NDArray[np.float32] | None = None
    likeliest_before: NDArray[np.int32] | None = None
    likeliest: NDArray[np.int32] | None = None


def save_measurement(output: Path, measurement: Measurement, samples: Samples) -> None:
    """Write measurement.json and samples.safetensors."""
    text = json.dumps(measurement.model_dump(mode="json"), indent=2, sort_keys=True, allow_nan=False)
    (output / MEASUREMENT_FILE).write_text(text + "\n", encoding="utf-8")
    arrays: dict[str, NDArray[Any]] = {"document": samples.document, "nll": samples.nll}
    arrays |= {name: values for name in _OPTIONAL if (values := getattr(samples, name)) is not None}
    (output / SAMPLES_FILE).write_bytes(save(arrays))


def load_measurement(stage_output: Path) -> Measurement:
    """Read what a stage that measures wrote."""
    return Measurement.model_validate_json((stage_output / MEASUREMENT_FILE).read_text(encoding="utf-8"))


def load_samples(stage_output: Path) -> Samples:
    """Read the values behind a measurement."""
    arrays = load_file(stage_output / SAMPLES_FILE)
    optional = {name: arrays[name] for name in _OPTIONAL if name in arrays}
    return Samples(arrays["document"], arrays["nll"], **optional)
