"""A lossless graph that the builder made of the tiny Llama, once for all tests here."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from quantflow.data.documents import Document, save_documents
from quantflow.data.windows import CALIBRATION_FILE, PACKED, SELECTION_FILE, make_windows, save_windows
from quantflow.formats.onnx.assemble import run as assemble
from quantflow.formats.onnx.base import run as build
from quantflow.formats.onnx.params import OnnxAssembleParams, OnnxBaseParams, SessionOptions
from quantflow.quantize import stage as quantize
from quantflow.quantize.params import QuantizeParams, int8_scheme
from tests.measure.inputs import data_output, evaluation_windows, source_output
from tests.reporting import RecordingReporter
from tests.tiny_models import VOCABULARY

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


@pytest.fixture(scope="session")
def calibrated(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Outputs of `source`, `data` and, as `codes`, `quantize` in W8A8."""
    root = tmp_path_factory.mktemp("w8a8")
    folders = {name: root / name for name in ("data", "codes")}
    for folder in folders.values():
        folder.mkdir()
    generator = np.random.default_rng(1)
    pieces = list(generator.integers(0, VOCABULARY, (12, 32)).astype(np.int32))
    save_windows(folders["data"] / CALIBRATION_FILE, make_windows(pieces[:8], [PACKED] * 8))
    save_windows(folders["data"] / SELECTION_FILE, make_windows(pieces[8:], [0, 1, 2, 3]))
    save_documents(folders["data"], [Document(f"d{n}", "letters", "selection", 32) for n in range(4)])
    folders["source"] = ground.source
    params = QuantizeParams(candidates=(int8_scheme("w8a8"),), device="cpu", batch_tokens=128)
    quantize.run(params, folders, folders["codes"], RecordingReporter())
    return folders
