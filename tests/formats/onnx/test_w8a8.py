"""A graph in W8A8 computes what its emulation in torch does, folds and channels apart included."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from quantflow.formats.assembly import ARTIFACT_FOLDER
from quantflow.formats.onnx.base import load_base
from quantflow.formats.onnx.census_record import load_census, load_expectation
from quantflow.formats.onnx.params import OnnxAssembleParams
from quantflow.measure import onnx as measuring
from quantflow.measure.measurement import load_measurement
from quantflow.measure.onnx_params import OnnxMeasureParams
from quantflow.model.families import FAMILIES
from quantflow.model.forward import final_hidden
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize.emulated import EmulatedDecoder
from quantflow.quantize.int8 import InputRange, int8_weight
from quantflow.quantize.int8_block import Int8Block, int8_file, save_int8_block
from quantflow.quantize.params import int8_scheme
from quantflow.runtime.ort import OnnxModel
from tests.formats.onnx.conftest import SESSION, Ground
from tests.reporting import RecordingReporter
from tests.tiny_models import VOCABULARY

FAMILY = FAMILIES["llama"]
SCHEME = int8_scheme("w8a8")
RANGE = InputRange(scale=8 / 255, zero_point=128)
LEFT = InputRange(scale=RANGE.scale / 254, zero_point=128)
KEPT = "model.layers.1.o"
IDS = np.random.default_rng(0).integers(0, VOCABULARY, 40)
BLOCKS = 3


def values(model: Path) -> Callable[[int | None], Int8Block]:
    """INT8 values of every unit but one, smoothed where there is a place for it, two channels apart."""
    reader, generator = SafetensorsReader(model), torch.Generator().manual_seed(1)
    apart, folded = torch.tensor([1, 5]), {"qkv": "input_layernorm", "down": "mlp.up_proj"}
    made: dict[int | None, Int8Block] = {}
    for index in range(BLOCKS):
        prefix = FAMILY.block_name(index)
        scales = {
            unit: 0.5 + torch.rand(reader.shape(f"{prefix}.{into}.weight")[0], generator=generator)
            for unit, into in folded.items()
        }
        linears = {}
        for unit, names in FAMILY.units.items():
            for name in names if f"{prefix}.{unit}" != KEPT else ():
                weight = reader.read(f"{prefix}.{name}.weight").float()
                if unit in scales:
                    weight = weight * scales[unit]
                if name == folded["down"]:
                    weight = weight / scales["down"].unsqueeze(1)
                left = LEFT if unit == "o" else None
                linears[f"{prefix}.{name}"] = replace(int8_weight(weight, apart), input=RANGE, remainder=left)
        folds = {f"{prefix}.{into}.weight": scales[unit] for unit, into in folded.items()}
        made[index] = Int8Block(linears, folds)
    scale = 0.5 + torch.rand(64, generator=generator)
    head = reader.read("model.embed_tokens.weight").float() * scale
    made[None] = Int8Block(
        {"lm_head": replace(int8_weight(head, apart), input=RANGE)}, {"model.norm.weight": scale}
    )
    return made.__getitem__


@pytest.fixture
def artifact(ground: Ground, tmp_path: Path) -> Path:
    chosen = tmp_path / "remedy"
    int8_file(chosen, SCHEME.id, 0).parent.mkdir(parents=True)
    given = values(ground.model)
    for index in (*range(BLOCKS), None):
        save_int8_block(int8_file(chosen, SCHEME.id, index), given(index))
    params = OnnxAssembleParams(name="w8a8", scheme="w8a8", codes=SCHEME.id, session=SESSION)
    return ground.assembled(tmp_path / "artifact", params, int8=chosen)


def emulated(ground: Ground) -> NDArray[np.float32]:
    decoder = EmulatedDecoder(ground.model, values(ground.model))
    (final,) = final_hidden(decoder, [torch.from_numpy(IDS)[None]], RecordingReporter(), "emulation")
    with decoder.loaded_head(), torch.no_grad():
        logits: NDArray[np.float32] = decoder.logits(final[0]).numpy()
    return logits


@pytest.mark.parametrize("optimization", ["basic", "all"])
def test_the_graph_computes_what_the_emulation_does(
    ground: Ground, artifact: Path, optimization: str
) -> None:
    session = SESSION.model_copy(update={"optimization": optimization})
    got = OnnxModel(artifact / ARTIFACT_FOLDER, session).start(IDS.size).logits(IDS)
    lossless = OnnxModel(load_base(ground.base).folder, SESSION).start(IDS.size).logits(IDS)
    expected = emulated(ground)
    # A sum in another order may round to the next code of 256: a few logits are off by a little.
    assert np.abs(got - expected).mean() < 0.05 * np.abs(lossless - expected).mean()


def test_every_unit_runs_as_int8_but_the_one_that_was_kept(
    ground: Ground, artifact: Path, tmp_path: Path
) -> None:
    (tmp_path / "measured").mkdir()
    reporter = RecordingReporter()
    inputs = {"base": ground.base, "data": ground.data, "baseline": ground.base, "assemble": artifact}
    params = OnnxMeasureParams(session=SESSION, instruction_set="avx2")
    measuring.artifact(params, inputs, tmp_path / "measured", reporter)
    census = load_census(tmp_path / "measured")
    assert {unit for unit, found in census.units.items() if found.found != "int8"} == {KEPT}
    assert census.fallen_back == ()
    assert reporter.codes() == []
    assert census.units["model.layers.0.qkv"].float_parts == 1
    assert census.units["model.layers.0.o"].operators == {"MatMulIntegerToFloat": 2}
    expected = load_expectation(artifact).float_share
    floating = 64 * 64 + 2 * (3 * (128 + 2 * 128 + 64) + 2 * 64 + VOCABULARY)
    assert (
        census.float_share
        == expected
        == pytest.approx(floating / (3 * (64 * 192 + 3 * 64 * 128) + VOCABULARY * 64))
    )
    measurement = load_measurement(tmp_path / "measured")
    assert measurement.kl is not None
    assert 0 < measurement.kl.mean < 0.5
