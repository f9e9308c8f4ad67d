"""Disks that fill up while graphs are written, and graphs that are damaged or too old: said as they are."""

import builtins
import errno
import io
from pathlib import Path
from typing import Any

import onnx
import pytest

from quantflow.errors import ArtifactError, QuantizationError
from quantflow.formats.assembly import ARTIFACT_FOLDER
from quantflow.formats.onnx import base
from quantflow.formats.onnx.assemble import run as assemble
from quantflow.formats.onnx.base import BASE_FOLDER, load_base
from quantflow.formats.onnx.census import take_census
from quantflow.formats.onnx.census_record import load_expectation
from quantflow.formats.onnx.params import DATA_FILE, GRAPH_FILE, OnnxAssembleParams
from quantflow.measure import onnx as measuring
from quantflow.pipeline.storage import of_storage
from quantflow.runtime.ort import OnnxModel
from tests import faults
from tests.formats.onnx.conftest import BUILD, SESSION, Ground
from tests.formats.onnx.test_artifact import MEASURING
from tests.reporting import RecordingReporter

W8 = OnnxAssembleParams(name="w8", scheme="w8", session=SESSION)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Fills the disk for files whose path matches, until the test ends."""
    monkeypatch.setattr(io, "open", io.open)
    monkeypatch.setattr(builtins, "open", builtins.open)
    return faults.fill_disk


@pytest.mark.parametrize("file", [DATA_FILE, f"{GRAPH_FILE}$", "genai_config.json", "expectation.json"])
def test_a_disk_that_fills_up_while_an_artifact_is_written_is_no_other_error(
    ground: Ground, tmp_path: Path, disk: Any, file: str
) -> None:
    disk(f"{tmp_path}/.*{file}")
    with pytest.raises(OSError) as full:
        ground.assembled(tmp_path / "w8", W8)
    assert full.value.errno == errno.ENOSPC


def test_within_onnxruntimes_own_quantizer_it_is_none_either_and_leaves_no_copy_of_the_model(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(model: Path, *arguments: Any, **options: Any) -> None:
        assert model.with_name(DATA_FILE).is_file()
        raise RuntimeError("cannot save") from OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("onnxruntime.quantization.quantize_dynamic", fails)
    (tmp_path / "dynamic").mkdir()
    inputs = {"source": ground.source, "base": ground.base}
    reporter = RecordingReporter()
    with pytest.raises(RuntimeError) as full:
        assemble(W8.model_copy(update={"scheme": "dynamic"}), inputs, tmp_path / "dynamic", reporter)
    found = of_storage(full.value)
    assert found is not None
    assert found.errno == errno.ENOSPC
    assert list(reporter.progress_folder.iterdir()) == []


def test_a_disk_too_full_for_the_optimised_graph_leaves_nothing_of_it(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = ground.assembled(tmp_path / "w8", W8)

    def fails(path: str, settings: Any, providers: list[str]) -> None:
        Path(settings.optimized_model_filepath).write_bytes(b"half")
        raise RuntimeError("system error number 28: No space left on device")

    monkeypatch.setattr("quantflow.runtime.ort.onnxruntime.InferenceSession", fails)
    (tmp_path / "measured").mkdir()
    inputs = {"base": ground.base, "data": ground.data, "baseline": ground.base, "assemble": artifact}
    reporter = RecordingReporter()
    with pytest.raises(OSError, match="No space left"):
        measuring.artifact(MEASURING, inputs, tmp_path / "measured", reporter)
    assert list(reporter.progress_folder.iterdir()) == []
    assert list((tmp_path / "measured").iterdir()) == []
    (tmp_path / "cut.onnx").write_bytes(b"\x0f not all of it")
    with pytest.raises(ArtifactError, match="left no optimised graph"):
        take_census(tmp_path / "cut.onnx", load_expectation(artifact), "CPUExecutionProvider")
    with pytest.raises(ArtifactError, match="cannot load it"):  # nothing was to be written
        OnnxModel(artifact / ARTIFACT_FOLDER, SESSION)


@pytest.mark.parametrize("damage", ["cut", "old"])
def test_a_graph_that_is_cut_short_or_too_old_ends_the_run_before_anything_is_made_of_it(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    def make(params: Any, checkpoint: Path, folder: Path, work: Path) -> None:
        folder.mkdir()
        for path in load_base(ground.base).folder.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        if damage == "cut":
            data = (folder / DATA_FILE).read_bytes()
            (folder / DATA_FILE).write_bytes(data[:-1])
        else:
            model = onnx.load(str(folder / GRAPH_FILE), load_external_data=False)
            model.opset_import[0].version = 12
            (folder / GRAPH_FILE).write_bytes(model.SerializeToString())

    monkeypatch.setattr(base, "build_graph_folder", make)
    (tmp_path / "base").mkdir()
    kind = ArtifactError if damage == "cut" else QuantizationError
    with pytest.raises(kind, match="is cut short" if damage == "cut" else "has opset 12"):
        base.run(BUILD, {"source": ground.source}, tmp_path / "base", RecordingReporter())
    assert [path.name for path in (tmp_path / "base").iterdir()] == [BASE_FOLDER]  # no base.json
