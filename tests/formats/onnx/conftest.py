"""A lossless graph that the builder made of the tiny Llama, once for all tests here."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from quantflow.formats.onnx.assemble import run as assemble
from quantflow.formats.onnx.base import run as build
from quantflow.formats.onnx.params import OnnxAssembleParams, OnnxBaseParams, SessionOptions
from tests.measure.inputs import data_output, evaluation_windows, source_output
from tests.reporting import RecordingReporter

SESSION = SessionOptions(provider="cpu", version="onnxruntime 1.32.0", threads=1)
BUILD = OnnxBaseParams(precision="fp32", provider="cpu", builder="onnxruntime-genai 0.18.0")


@dataclass(frozen=True)
class Ground:
    """Finished outputs of the stages before an ONNX artifact is assembled."""

    model: Path
    source: Path
    base: Path
    data: Path

    def assembled(self, output: Path, params: OnnxAssembleParams, **given: Path) -> Path:
        """Run the assemble stage, with the outputs of `codes` or `int8` where there are any."""
        output.mkdir(parents=True)
        assemble(params, {"source": self.source, "base": self.base, **given}, output, RecordingReporter())
        return output


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Ground:
    root = tmp_path_factory.mktemp("onnx")
    source = source_output(root / "source", tiny_llama)
    (root / "base").mkdir()
    build(BUILD, {"source": source}, root / "base", RecordingReporter())
    data = data_output(root / "data", evaluation_windows())
    return Ground(tiny_llama, source, root / "base", data)
