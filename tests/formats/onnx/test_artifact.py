"""ONNX artifacts of the tiny Llama: what torch says, what ONNX Runtime says, what stands in the folder."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from quantflow.errors import ArtifactError
from quantflow.formats.assembly import ARTIFACT_FOLDER, load_assembly
from quantflow.formats.folder import PROVENANCE_FILE
from quantflow.formats.onnx.base import load_base
from quantflow.formats.onnx.census_record import load_census
from quantflow.formats.onnx.companions import README_FILE
from quantflow.formats.onnx.params import (
    DATA_FILE,
    GRAPH_FILE,
    OnnxAssembleParams,
    OnnxScheme,
    SessionOptions,
)
from quantflow.measure import onnx as measuring
from quantflow.measure.measurement import load_measurement, load_samples
from quantflow.measure.onnx_params import OnnxMeasureParams
from quantflow.pipeline.digest import file_digest
from quantflow.runtime.ort import OnnxModel, generate
from tests.formats.assembling import AWQ, PARAMS, assembled, rounded_blocks
from tests.formats.onnx.conftest import SESSION, Ground
from tests.reporting import RecordingReporter
from tests.tiny_models import VOCABULARY

MEASURING = OnnxMeasureParams(session=SESSION, instruction_set="avx2")
IDS = np.random.default_rng(0).integers(0, VOCABULARY, 60)
EXACT = SESSION.model_copy(update={"optimization": "basic", "accuracy_level": 0})


def torch_logits(folder: Path, ids: NDArray[np.int64]) -> NDArray[np.float32]:
    load: Any = AutoModelForCausalLM.from_pretrained
    with torch.no_grad():
        logits: NDArray[np.float32] = (
            load(folder, dtype=torch.float32)(torch.from_numpy(ids)[None]).logits[0].numpy()
        )
    return logits


def logits(folder: Path, session: SessionOptions = SESSION) -> NDArray[np.float32]:
    return OnnxModel(folder, session).start(IDS.size).logits(IDS)


def params(scheme: OnnxScheme, **changes: Any) -> OnnxAssembleParams:
    return OnnxAssembleParams(name="quantized", scheme=scheme, session=SESSION, **changes)


def measured(ground: Ground, artifact: Path, output: Path) -> RecordingReporter:
    reporter = RecordingReporter()
    output.mkdir()
    inputs = {"base": ground.base, "data": ground.data, "baseline": ground.base, "assemble": artifact}
    measuring.artifact(MEASURING, inputs, output, reporter)
    return reporter


def test_the_lossless_graph_says_what_torch_says_in_one_piece_and_in_several(ground: Ground) -> None:
    expected, model = torch_logits(ground.model, IDS), OnnxModel(load_base(ground.base).folder, SESSION)
    whole = model.start(IDS.size).logits(IDS)
    sequel = model.start(IDS.size + 5)
    pieces = [sequel.logits(IDS[begin:end]) for begin, end in ((0, 23), (23, 24), (24, 60))]
    assert np.abs(whole - expected).max() < 1e-3
    assert np.abs(np.concatenate(pieces) - expected).max() < 1e-3


def test_every_linear_of_the_model_is_found_in_the_graph(ground: Ground) -> None:
    linears = load_base(ground.base).linears
    names = [part.linear for linear in linears for part in linear.parts]
    assert len(names) == len(set(names)) == 3 * 7 + 1
    assert {linear.unit for linear in linears} >= {"model.layers.2.qkv", "model.layers.0.down", "lm_head"}


def test_greedy_tokens_are_the_same_through_our_session_and_through_onnxruntime_genai(
    ground: Ground, tmp_path: Path
) -> None:
    folder = ground.assembled(tmp_path / "w8", params("w8")) / ARTIFACT_FOLDER
    settings = onnxruntime_genai.GeneratorParams(model := onnxruntime_genai.Model(str(folder)))
    settings.set_search_options(max_length=40, do_sample=False)
    generator = onnxruntime_genai.Generator(model, settings)
    generator.append_tokens(IDS[:20].tolist())  # ids of Hugging Face's tokenizer, never of genai's own
    while not generator.is_done():
        generator.generate_next_token()
    told = list(generator.get_sequence(0))[20:]
    ours = generate(OnnxModel(folder, SESSION), IDS[:20].tolist(), 20, frozenset({2}))
    assert ours[: len(told)] == told
    assert len(told) >= min(20, len(ours)) - 1


@pytest.mark.parametrize("scheme", ["w8", "w8-block"])
def test_int8_weights_are_close_and_found_to_run_so(
    ground: Ground, tmp_path: Path, scheme: OnnxScheme
) -> None:
    artifact = ground.assembled(tmp_path / "artifact", params(scheme))
    reporter = measured(ground, artifact, tmp_path / "measured")
    measurement, census = load_measurement(tmp_path / "measured"), load_census(tmp_path / "measured")
    assert measurement.kl is not None
    assert 0 < measurement.kl.mean < 0.01
    assert measurement.runtime.options["provider"] == "CPUExecutionProvider"
    assert measurement.runtime.options["session.qdq_matmulnbits_accuracy_level"] == "4"
    assert census.fallen_back == ()
    assert {unit.found for unit in census.units.values()} == {"weights-int8"}
    assert reporter.codes() == []


def test_the_lossless_artifact_measures_as_nothing_lost_at_every_scored_position(
    ground: Ground, tmp_path: Path
) -> None:
    artifact = ground.assembled(tmp_path / "fp32", params("fp32"))
    measured(ground, artifact, tmp_path / "measured")
    (tmp_path / "baseline").mkdir()
    inputs = {"base": ground.base, "data": ground.data}
    measuring.baseline(MEASURING, inputs, tmp_path / "baseline", RecordingReporter())
    samples, alone = load_samples(tmp_path / "measured"), load_samples(tmp_path / "baseline")
    assert samples.kl is not None
    assert np.abs(samples.kl).max() < 1e-6
    assert np.allclose(samples.nll, alone.nll, atol=1e-5)
    assert load_census(tmp_path / "measured").float_share == 1.0


def test_scores_are_those_of_torch_whatever_the_chunks(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quantflow.runtime.ort.MOST_CHUNK", 9)
    monkeypatch.setattr(measuring, "PIECE", 17)
    (tmp_path / "baseline").mkdir()
    inputs = {"base": ground.base, "data": ground.data}
    measuring.baseline(MEASURING, inputs, tmp_path / "baseline", RecordingReporter())
    expected = []
    for window, first in zip(windows := _windows(ground), windows.scored_from, strict=True):
        ids = window.astype(np.int64)
        if ids.size > first:
            log_p = torch.from_numpy(torch_logits(ground.model, ids)).log_softmax(-1)
            expected += [-float(log_p[at - 1, ids[at]]) for at in range(int(first), ids.size)]
    assert np.allclose(load_samples(tmp_path / "baseline").nll, expected, atol=1e-3)


def test_kept_units_stay_in_floating_point_and_are_counted(ground: Ground, tmp_path: Path) -> None:
    artifact = ground.assembled(tmp_path / "kept", params("w8", keep=("lm_head", "*.0.down")))
    reporter = measured(ground, artifact, tmp_path / "measured")
    census = load_census(tmp_path / "measured")
    floating = {unit for unit, found in census.units.items() if found.found == "float"}
    assert floating == {"lm_head", "model.layers.0.down"} == set(load_assembly(artifact).kept_units)
    assert census.float_share == pytest.approx(
        (400 * 64 + 64 * 128) / (400 * 64 + 3 * (64 * 128 * 3 + 64 * 192))
    )
    assert reporter.codes() == []


def test_four_bit_codes_of_an_awq_artifact_serve_both_runtimes(ground: Ground, tmp_path: Path) -> None:
    blocks = rounded_blocks(ground.model)
    awq = assembled(tmp_path / "awq", ground.model, blocks, "bfloat16", params=PARAMS)
    exact = OnnxAssembleParams(name="int4", scheme="w4-block", session=EXACT)
    onnx = ground.assembled(tmp_path / "onnx", exact, codes=awq.folder.parent) / ARTIFACT_FOLDER
    from quantflow.formats.read import open_artifact
    from quantflow.model.decoder import StreamedDecoder
    from quantflow.model.forward import final_hidden

    decoder = StreamedDecoder(awq.folder, open_artifact(awq.folder), "cpu")
    (final,) = final_hidden(decoder, [torch.from_numpy(IDS)[None]], RecordingReporter(), "torch")
    with decoder.loaded_head(), torch.no_grad():
        expected = decoder.logits(final[0]).numpy()
    assert AWQ.bits == 4
    assert np.abs(logits(onnx, EXACT) - expected).max() < 2e-2
    lossless = logits(load_base(ground.base).folder)
    assert np.abs(lossless - expected).max() > 0.2  # so that a graph without the codes would be seen


def test_dynamic_is_onnxruntimes_own_and_leaves_the_embedding_alone(
    ground: Ground, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    artifact = ground.assembled(tmp_path / "dynamic", params("dynamic"))
    assert not caplog.records  # its advice to run another program first is not for our users
    measured(ground, artifact, tmp_path / "measured")
    census = load_census(tmp_path / "measured")
    assert {unit.found for unit in census.units.values()} == {"int8"}
    assert census.fallen_back == ()
    assert {path.name for path in load_base(ground.base).folder.iterdir()} >= {GRAPH_FILE, DATA_FILE}


def test_the_folder_says_what_it_is_and_where_it_is_from(ground: Ground, tmp_path: Path) -> None:
    folder = ground.assembled(tmp_path / "w8", params("w8", keep=("lm_head",))) / ARTIFACT_FOLDER
    told = json.loads((folder / PROVENANCE_FILE).read_text())
    assert told["scheme"] == "w8"
    assert told["precisions"]["lm_head"] == "float32"
    assert told["precisions"]["model.layers.1.gate_up"] == "int8"
    assert set(told["files"]) == {path.name for path in folder.iterdir()} - {PROVENANCE_FILE}
    assert told["files"][DATA_FILE] == file_digest(folder / DATA_FILE)
    options = json.loads((folder / "genai_config.json").read_text())["model"]["decoder"]["session_options"]
    assert options["session.qdq_matmulnbits_accuracy_level"] == "4"
    again = ground.assembled(tmp_path / "again", params("w8", keep=("lm_head",))) / ARTIFACT_FOLDER
    for path in folder.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name


def test_both_programs_of_the_readme_run_as_they_stand(ground: Ground, tmp_path: Path) -> None:
    folder = ground.assembled(tmp_path / "w8", params("w8")) / ARTIFACT_FOLDER
    programs = re.findall(r"```python\n(.*?)```", (folder / README_FILE).read_text(), re.DOTALL)
    assert len(programs) == 2
    printed = [
        subprocess.run(
            [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
        ).stdout
        for program in programs
    ]
    assert re.fullmatch(rf"\(1, \d+, {VOCABULARY}\)\n", printed[0])
    assert printed[1].startswith("Good morning")


def test_a_damaged_artifact_is_refused_before_anything_is_measured(ground: Ground, tmp_path: Path) -> None:
    artifact = ground.assembled(tmp_path / "w8", params("w8"))
    data = artifact / ARTIFACT_FOLDER / DATA_FILE
    data.write_bytes(data.read_bytes()[:-100])
    with pytest.raises(ArtifactError, match="cut short"):
        measured(ground, artifact, tmp_path / "measured")
    assert list((tmp_path / "measured").iterdir()) == []


def _windows(ground: Ground) -> Any:
    from quantflow.measure.evaluation import load_evaluation

    return load_evaluation(ground.data)
