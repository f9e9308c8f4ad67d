"""Speed and memory of an ONNX artifact beside the lossless graph, each in a process of its own."""

from pathlib import Path

import pytest

from quantflow.errors import ArtifactError
from quantflow.formats.assembly import ARTIFACT_FOLDER
from quantflow.formats.onnx.params import DATA_FILE, OnnxAssembleParams
from quantflow.gate.params import MemoryMargins, SpeedMargin
from quantflow.gate.serving import serving_criteria
from quantflow.measure import onnx_speed
from quantflow.measure.onnx_params import OnnxSpeedParams
from quantflow.measure.serving import load_serving
from tests.formats.onnx.conftest import SESSION, Ground
from tests.reporting import RecordingReporter

PARAMS = OnnxSpeedParams(
    session=SESSION, instruction_set="avx2", contexts=(8, 24, 254), output_tokens=3, rounds=3
)


def timed(ground: Ground, artifact: Path, output: Path) -> RecordingReporter:
    reporter = RecordingReporter()
    output.mkdir()
    onnx_speed.run(PARAMS, {"base": ground.base, "assemble": artifact}, output, reporter)
    return reporter


def test_every_context_is_timed_in_turns_and_judged_and_memory_is_each_graphs_own(
    ground: Ground, tmp_path: Path
) -> None:
    params = OnnxAssembleParams(name="d", scheme="dynamic", session=SESSION)
    artifact = ground.assembled(tmp_path / "dynamic", params)
    reporter = timed(ground, artifact, tmp_path / "speed")
    serving = load_serving(tmp_path / "speed")
    assert [at.prompt_tokens for at in serving.speed.at] == [8, 24]
    assert all(len(ratios) == 3 for at in serving.speed.at for ratios in at.speedup.values())
    assert all(at.artifact.time_to_first_token > 0 for at in serving.speed.at)
    memory = serving.memory.artifact
    assert memory.resident_bytes is not None
    assert memory.load_seconds is not None
    assert memory.idle_bytes < memory.resident_bytes <= memory.peak_bytes < memory.advised_bytes
    # The tiny Llama has a context of 256 tokens.
    assert reporter.codes() == ["contexts-left-out", "no-fast-int8"]
    criteria = serving_criteria(
        "d",
        serving,
        SpeedMargin(min_speedup=1e-6, metric="time_to_first_token"),
        MemoryMargins(max_ratio=100.0, max_bytes=None),
    )
    assert [(c.slice, c.verdict.value) for c in criteria] == [
        ("prompts of 8 tokens", "pass"),
        ("prompts of 24 tokens", "pass"),
        ("all", "pass"),
    ]


def test_a_damaged_graph_is_refused_by_the_process_that_loads_it(ground: Ground, tmp_path: Path) -> None:
    artifact = ground.assembled(tmp_path / "w8", OnnxAssembleParams(name="w8", scheme="w8", session=SESSION))
    (artifact / ARTIFACT_FOLDER / DATA_FILE).unlink()
    with pytest.raises(ArtifactError, match=r"there is no model\.onnx\.data"):
        timed(ground, artifact, tmp_path / "speed")
    assert list((tmp_path / "speed").iterdir()) == []
