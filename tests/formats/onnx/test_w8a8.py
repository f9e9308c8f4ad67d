"""W8A8 from calibration to ONNX Runtime: the graph computes what the emulation says, in INT8."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from quantflow.formats.assembly import ARTIFACT_FOLDER, load_assembly
from quantflow.formats.onnx.assemble import planned_size
from quantflow.formats.onnx.assemble import run as assemble
from quantflow.formats.onnx.census_record import COMPUTES, load_census, load_expectation
from quantflow.formats.onnx.int8_values import Int8Values
from quantflow.formats.onnx.params import DATA_FILE, OnnxAssembleParams, SessionOptions
from quantflow.measure import onnx as measuring
from quantflow.measure.onnx_params import OnnxMeasureParams
from quantflow.model.families import FAMILIES
from quantflow.model.forward import BlockPass
from quantflow.model.passes import PassProgress
from quantflow.quantize.emulated import EmulatedDecoder
from quantflow.quantize.int8_block import Int8Block, int8_file, read_int8_block, save_int8_block
from quantflow.quantize.params import RemedyParams, int8_scheme
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


def assembled(
    ground: Ground,
    values: Path,
    output: Path,
    keep: tuple[str, ...] = (),
    weights_only: tuple[str, ...] = (),
) -> Path:
    output.mkdir(parents=True)
    params = OnnxAssembleParams(
        name="w8a8", scheme="w8a8", session=SESSION, keep=keep, weights_only=weights_only
    )
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


def test_a_unit_s_middle_rung_is_its_codes_with_a_floating_input_and_the_census_sees_it(
    ground: Ground, all_kinds: Path, tmp_path: Path
) -> None:
    """One of each kind: smoothed, with channels apart, in two products; the head; one kept beside them."""
    middle = ("lm_head", "model.layers.0.down", "model.layers.1.qkv", "model.layers.2.gate_up")
    keep = ("model.layers.2.down",)
    artifact = assembled(ground, all_kinds, tmp_path / "artifact", keep, middle)
    values = tmp_path / "values"
    int8_file(values, W8A8.id, 0).parent.mkdir(parents=True)
    chosen = Int8Values(all_kinds, W8A8, FAMILIES["llama"], BLOCKS, frozenset(keep), middle)
    for index in (*range(BLOCKS), None):
        own = read_int8_block(all_kinds, W8A8.id, index)
        dropped = [name for name in own.linears if "layers.2.mlp.down" in name]
        linears = {name: chosen(name) for name in own.linears if name not in dropped}
        folds = {
            name: scale for name, scale in own.folds.items() if name in chosen.folded(ground.model).names
        }
        save_int8_block(int8_file(values, W8A8.id, index), Int8Block(linears, folds))
    ranges = [
        read_int8_block(values, W8A8.id, index).linears[name].input
        for index, name in (
            (None, "lm_head"),
            (0, "model.layers.0.mlp.down_proj"),
            (1, "model.layers.1.mlp.down_proj"),
        )
    ]
    assert ranges[:2] == [None, None] != ranges[1:]
    expected, exact = emulated(ground, values, tmp_path / "progress"), lossless(ground, tmp_path / "none")
    assert np.abs(in_onnx(artifact, BASIC) - expected).mean() < 0.1 * np.abs(expected - exact).mean()
    (tmp_path / "measured").mkdir()
    inputs = {"base": ground.base, "data": ground.data, "baseline": ground.base, "assemble": artifact}
    params = OnnxMeasureParams(session=SESSION, instruction_set="avx2")
    measuring.artifact(params, inputs, tmp_path / "measured", reporter := RecordingReporter())
    census = load_census(tmp_path / "measured")
    found = {kind: {u for u, own in census.units.items() if own.found == kind} for kind in COMPUTES.values()}
    assert found["weights-int8"] == set(middle)
    assert found["float"] == set(keep)
    assert len(found["int8"]) == 4 * BLOCKS + 1 - 5
    assert census.units["model.layers.0.down"].operators == {"MatMulNBits": 1}  # and no second product
    assert census.fallen_back == ()
    assert reporter.codes() == []
    size = load_assembly(artifact).weight_bytes
    data = (artifact / ARTIFACT_FOLDER / DATA_FILE).stat().st_size
    params_of = OnnxAssembleParams(
        name="w8a8", scheme="w8a8", session=SESSION, keep=keep, weights_only=middle
    )
    given = {"source": ground.source, "base": ground.base, "values": all_kinds}
    assert planned_size(params_of, given) == size
    assert data == pytest.approx(size, rel=0.02)  # constants lie at round places, the smallest in the graph
    told = json.loads((artifact / ARTIFACT_FOLDER / "quantflow.json").read_text())
    assert told["weights_only"] == list(middle)
