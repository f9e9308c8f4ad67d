"""Measuring in vLLM, with a stand-in for it: the same positions as in torch, and KL as a lower bound."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from quantflow.data.windows import scored_documents
from quantflow.errors import ArtifactError
from quantflow.measure.batches import scored_targets
from quantflow.measure.measurement import load_measurement, load_samples
from quantflow.measure.params import ServedParams
from quantflow.measure.served import artifact as measure_artifact
from quantflow.measure.served import baseline as measure_baseline
from quantflow.source.checkpoint import Checkpoint, save_checkpoint
from tests.measure.inputs import data_output, evaluation_windows
from tests.reporting import RecordingReporter
from tests.runtime.fakes.vllm import table
from tests.runtime.faking import PARAMS, fake_environment, fake_model
from tests.tiny_models import VOCABULARY

WINDOWS = evaluation_windows()
SERVED = ServedParams(serving=PARAMS, batch_tokens=64)


def checkpoint_of(output: Path, model: Path) -> Path:
    output.mkdir()
    checkpoint = Checkpoint(model, "id", "folder", str(model), "float32", "llama", 1, 1, {})
    save_checkpoint(output, checkpoint)
    return output


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Path]:
    """A baseline measured in the stand-in, and an artifact to measure."""
    fake_environment(tmp_path / "cache", monkeypatch)
    fake_model(tmp_path / "assemble" / "artifact", artifact=True)
    found = {
        "source": checkpoint_of(tmp_path / "source", fake_model(tmp_path / "model")),
        "data": data_output(tmp_path / "data", WINDOWS),
        "assemble": tmp_path / "assemble",
        "baseline": tmp_path / "baseline",
        "measure": tmp_path / "measure",
    }
    for role in ("baseline", "measure"):
        found[role].mkdir()
    measure_baseline(SERVED, found, found["baseline"], RecordingReporter())
    return found


def contexts() -> list[int]:
    """The token before every scored one."""
    return [
        int(token)
        for window, first in zip(WINDOWS, WINDOWS.scored_from, strict=True)
        for token in window[first - 1 : -1]
    ]


def test_every_scored_position_has_the_loss_that_the_model_gives_it(inputs: Mapping[str, Path]) -> None:
    samples = load_samples(inputs["baseline"])
    expected = -table(VOCABULARY, artifact=False)[contexts(), scored_targets(WINDOWS)]
    assert samples.nll == pytest.approx(expected, abs=1e-6)
    assert (samples.document == scored_documents(WINDOWS)).all()
    assert load_measurement(inputs["baseline"]).runtime.name == "vllm"


def test_an_artifact_is_measured_beside_it_with_a_kl_that_is_at_least_this(
    inputs: Mapping[str, Path], reporter: RecordingReporter
) -> None:
    measure_artifact(SERVED, inputs, inputs["measure"], reporter)
    samples, measurement = load_samples(inputs["measure"]), load_measurement(inputs["measure"])
    log_p, log_q = (table(VOCABULARY, artifact=which)[contexts()] for which in (False, True))
    kl = (np.exp(log_p) * (log_p - log_q)).sum(-1)
    assert samples.kl is None
    assert samples.kl_at_least is not None and samples.top1 is not None
    assert (samples.kl_at_least <= kl + 1e-6).all()
    assert samples.kl_at_least.mean() > 0.1 * kl.mean()
    assert (samples.top1 == (log_p.argmax(-1) == log_q.argmax(-1))).all()
    assert measurement.kl is not None and measurement.kl.at_least
    assert measurement.slices["chat"].kl_mean is not None
    asked = reporter.progress["Scoring in vLLM"]
    assert asked[0] == asked[1] > 0


def test_a_model_that_vllm_cannot_run_is_no_measurement(
    inputs: Mapping[str, Path], tmp_path: Path, reporter: RecordingReporter
) -> None:
    fake_model(tmp_path / "other" / "artifact", artifact=True, fake="no-kernel")
    with pytest.raises(ArtifactError, match="no kernel"):
        measure_artifact(SERVED, {**inputs, "assemble": tmp_path / "other"}, inputs["measure"], reporter)
    assert list(inputs["measure"].iterdir()) == []


def test_another_type_than_the_baselines_is_refused(
    inputs: Mapping[str, Path], reporter: RecordingReporter
) -> None:
    other = SERVED.model_copy(update={"serving": PARAMS.model_copy(update={"dtype": "bfloat16"})})
    with pytest.raises(ArtifactError, match="computes it in bfloat16, the baseline in float32"):
        measure_artifact(other, inputs, inputs["measure"], reporter)
