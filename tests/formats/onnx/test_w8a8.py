"""W8A8 from calibration to ONNX Runtime: the graph computes what the emulation says, in INT8."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from quantflow.data.windows import CALIBRATION_FILE, PACKED, SELECTION_FILE, make_windows, save_windows
from quantflow.formats.assembly import ARTIFACT_FOLDER, load_assembly
from quantflow.formats.onnx.assemble import run as assemble
from quantflow.formats.onnx.census_record import load_census, load_expectation
from quantflow.formats.onnx.params import OnnxAssembleParams, SessionOptions
from quantflow.measure import onnx as measuring
from quantflow.measure.onnx_params import OnnxMeasureParams
from quantflow.model.forward import BlockPass
from quantflow.model.passes import PassProgress
from quantflow.quantize import stage as quantize
from quantflow.quantize.emulated import EmulatedDecoder
from quantflow.quantize.int8_block import Int8Block, int8_file, read_int8_block, save_int8_block
from quantflow.quantize.params import QuantizeParams, RemedyParams, int8_scheme
from quantflow.remedies import stage as remedy
from quantflow.remedies.model import RemediedModel
from quantflow.remedies.options import Option
from quantflow.remedies.record import load_remedy_record
from quantflow.runtime.ort import OnnxModel
from tests.formats.onnx.conftest import SESSION, Ground
from tests.reporting import RecordingReporter
from tests.tiny_models import VOCABULARY

W8A8 = int8_scheme("w8a8")
IDS = np.random.default_rng(0).integers(0, VOCABULARY, 60)
BASIC = SESSION.model_copy(update={"optimization": "basic"})
BLOCKS = 3


@pytest.fixture(scope="module")
def calibrated(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Outputs of `source`, `data` and, as `codes`, `quantize`."""
    root = tmp_path_factory.mktemp("w8a8")
    folders = {name: root / name for name in ("data", "codes")}
    for folder in folders.values():
        folder.mkdir()
    generator = np.random.default_rng(1)
    pieces = list(generator.integers(0, VOCABULARY, (12, 32)).astype(np.int32))
    save_windows(folders["data"] / CALIBRATION_FILE, make_windows(pieces[:8], [PACKED] * 8))
    save_windows(folders["data"] / SELECTION_FILE, make_windows(pieces[8:], [0, 1, 2, 3]))
    folders["source"] = ground.source
    params = QuantizeParams(candidates=(W8A8,), device="cpu", batch_tokens=128)
    quantize.run(params, folders, folders["codes"], RecordingReporter())
    return folders


def assembled(ground: Ground, values: Path, output: Path, keep: tuple[str, ...] = ()) -> Path:
    output.mkdir(parents=True)
    params = OnnxAssembleParams(name="w8a8", scheme="w8a8", session=SESSION, keep=keep)
    inputs = {"source": ground.source, "base": ground.base, "values": values}
    assemble(params, inputs, output, RecordingReporter())
    return output


def emulated(ground: Ground, values: Path, folder: Path) -> NDArray[np.float32]:
    decoder = EmulatedDecoder(ground.model, partial(read_int8_block, values, W8A8.id))
    ids = torch.from_numpy(IDS)[None]
    with torch.no_grad():
        states = BlockPass(decoder, [ids], PassProgress(RecordingReporter(progress_folder=folder)))
        for index, block in states.blocks():
            states.run(index, block, lambda steps: None)
        result: NDArray[np.float32] = decoder.logits(decoder.final(states.hidden[0]))[0].numpy()
    return result


def in_onnx(artifact: Path, session: SessionOptions) -> NDArray[np.float32]:
    return OnnxModel(artifact / ARTIFACT_FOLDER, session).start(IDS.size).logits(IDS)


def lossless(ground: Ground, folder: Path) -> NDArray[np.float32]:
    return emulated(ground, _empty(folder), folder / "progress")


def _empty(folder: Path) -> Path:
    int8_file(folder, W8A8.id, 0).parent.mkdir(parents=True)
    for index in (*range(BLOCKS), None):
        save_int8_block(int8_file(folder, W8A8.id, index), Int8Block())
    return folder


@pytest.fixture(scope="module")
def all_kinds(ground: Ground, calibrated: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Values with every remedy: a unit smoothed, one with channels apart, one in two products."""
    output = tmp_path_factory.mktemp("values")
    params = RemedyParams(scheme=W8A8, device="cpu", batch_tokens=128)
    decoder = EmulatedDecoder(ground.model, lambda index: Int8Block())
    model = RemediedModel(decoder, calibrated["codes"], params)
    kinds = {
        "qkv": Option(0.5, 4),
        "o": Option(channels=2),
        "gate_up": Option(0.3),
        "down": Option(0.5, 1, "mse", twice=True),
        "lm_head": Option(0.5, 3, "percentile"),
    }
    options = {unit: kinds[unit.rpartition(".")[2]] for unit in model.sizes}
    int8_file(output, W8A8.id, 0).parent.mkdir(parents=True)
    for index in (*range(BLOCKS), None):
        save_int8_block(int8_file(output, W8A8.id, index), model.values(index, options))
    return output


@pytest.mark.parametrize("session", [BASIC, SESSION], ids=["basic", "all"])
def test_the_graph_computes_what_the_emulation_says(
    ground: Ground, all_kinds: Path, tmp_path: Path, session: SessionOptions
) -> None:
    artifact = assembled(ground, all_kinds, tmp_path / "artifact")
    expected, exact = emulated(ground, all_kinds, tmp_path / "progress"), lossless(ground, tmp_path / "none")
    cost = np.abs(expected - exact).mean()
    # Sums in another order send a few inputs to the neighbouring code.
    assert np.abs(in_onnx(artifact, session) - expected).mean() < 0.1 * cost


def test_kept_units_are_lossless_in_the_graph_and_folds_around_them_undone(
    ground: Ground, calibrated: dict[str, Path], tmp_path: Path
) -> None:
    keep = ("model.layers.1.gate_up", "model.layers.0.down", "lm_head")
    values = tmp_path / "values"
    values.mkdir()
    params = RemedyParams(scheme=W8A8, keep=keep, max_floating=1.0, device="cpu", batch_tokens=128)
    remedy.run(params, calibrated, values, RecordingReporter())
    artifact = assembled(ground, values, tmp_path / "artifact", keep)
    assert set(load_assembly(artifact).kept_units) == set(keep)
    expected, exact = emulated(ground, values, tmp_path / "progress"), lossless(ground, tmp_path / "none")
    assert np.abs(in_onnx(artifact, BASIC) - expected).mean() < 0.1 * np.abs(expected - exact).mean()


def test_the_floating_share_of_the_artifact_is_that_of_the_remedies(
    ground: Ground, calibrated: dict[str, Path], tmp_path: Path
) -> None:
    values = tmp_path / "values"
    values.mkdir()
    remedy.run(
        RemedyParams(scheme=W8A8, device="cpu", batch_tokens=128), calibrated, values, RecordingReporter()
    )
    artifact = assembled(ground, values, tmp_path / "artifact")
    assert load_expectation(artifact).float_share == pytest.approx(load_remedy_record(values).floating_share)


def test_every_unit_is_found_to_run_as_int8_with_its_products_and_floating_parts(
    ground: Ground, all_kinds: Path, tmp_path: Path
) -> None:
    artifact = assembled(ground, all_kinds, tmp_path / "artifact")
    (tmp_path / "measured").mkdir()
    inputs = {"base": ground.base, "data": ground.data, "baseline": ground.base, "assemble": artifact}
    params = OnnxMeasureParams(session=SESSION, instruction_set="avx2")
    measuring.artifact(params, inputs, tmp_path / "measured", reporter := RecordingReporter())
    census = load_census(tmp_path / "measured")
    assert {unit.found for unit in census.units.values()} == {"int8"}
    assert census.fallen_back == ()
    assert census.units["model.layers.0.down"].operators == {"MatMulIntegerToFloat": 2}  # in two products
    assert census.units["model.layers.0.qkv"].float_parts == 1
    assert census.units["model.layers.0.gate_up"].float_parts == 0
    assert reporter.codes() == []
