"""Graphs of a model that the GenAI builder does not know: torch makes them, what follows is the same."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai
import pytest

from quantflow.data.windows import CALIBRATION_FILE, PACKED, make_windows, save_windows
from quantflow.errors import QuantizationError, RecipeError
from quantflow.formats.assembly import ARTIFACT_FOLDER
from quantflow.formats.folder import PROVENANCE_FILE
from quantflow.formats.onnx import exporting
from quantflow.formats.onnx.base import load_base
from quantflow.formats.onnx.base import run as build
from quantflow.formats.onnx.census_record import load_census
from quantflow.formats.onnx.export_program import REFUSAL
from quantflow.formats.onnx.graph_file import GraphFile
from quantflow.formats.onnx.params import GENAI_CONFIG, GRAPH_FILE, OnnxAssembleParams, OnnxScheme
from quantflow.measure import onnx as measuring
from quantflow.measure.measurement import load_measurement
from quantflow.model.families import FAMILIES
from quantflow.quantize import stage as quantize
from quantflow.quantize.params import QuantizeParams, int8_scheme
from quantflow.runtime.ort import OnnxModel, generate
from tests.formats.onnx.batches import in_pieces, in_torch, not_at_all, on_the_left, on_the_right, whole
from tests.formats.onnx.conftest import BUILD, SESSION, Ground
from tests.formats.onnx.test_artifact import MEASURING
from tests.formats.onnx.test_w8a8 import BASIC, assembled, emulated, in_onnx
from tests.formats.onnx.test_w8a8 import IDS as W8A8_IDS
from tests.measure.inputs import data_output, evaluation_windows, source_output
from tests.reporting import RecordingReporter
from tests.tiny_models import VOCABULARY, random_model, tiny_config, tiny_tokenizer

IDS = np.random.default_rng(3).integers(3, 400, 20).tolist()


def exported(root: Path, kind: str) -> tuple[Ground, RecordingReporter]:
    model = random_model(root / "model", tiny_config(kind, num_hidden_layers=2))
    tiny_tokenizer().save_pretrained(model)
    source = source_output(root / "source", model)
    (root / "base").mkdir()
    build(BUILD, {"source": source}, root / "base", reporter := RecordingReporter())
    return Ground(model, source, root / "base", data_output(root / "data", evaluation_windows())), reporter


@pytest.fixture(scope="module")
def olmo2(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ground, RecordingReporter]:
    return exported(tmp_path_factory.mktemp("olmo2"), "olmo2")


def test_torch_makes_the_graph_says_so_and_every_linear_is_found_in_it(
    olmo2: tuple[Ground, RecordingReporter],
) -> None:
    ground, reporter = olmo2
    (event,) = reporter.events
    assert event.code == "graph-exported-by-torch"
    assert "Olmo2ForCausalLM" in event.message
    base = load_base(ground.base)
    assert base.is_exported
    assert base.builder.startswith("torch 2")
    names = [part.linear for linear in base.linears for part in linear.parts]
    assert len(names) == len(set(names)) == 2 * 7 + 1
    graph = GraphFile(base.folder / GRAPH_FILE)
    assert graph.opset == 21
    inputs = {given.name for given in graph.model.graph.input}
    assert inputs == {"input_ids", "attention_mask"} | {
        f"past_key_values.{block}.{part}" for block in range(2) for part in ("key", "value")
    }
    assert str(ground.model) not in (base.folder / GRAPH_FILE).read_bytes().decode("latin-1")


@pytest.mark.parametrize("padding", [not_at_all, on_the_left, on_the_right])
def test_a_batch_says_what_torch_says_in_one_piece_and_in_several(
    olmo2: tuple[Ground, RecordingReporter], padding: Any
) -> None:
    folder, (ids, mask) = load_base(olmo2[0].base).folder, padding()
    expected, real = in_torch(olmo2[0].model, ids, mask), mask.astype(bool)
    assert np.abs(whole(folder, ids, mask) - expected)[real].max() < 1e-3
    assert np.abs(in_pieces(folder, ids, mask, (9, 10)) - expected)[real].max() < 1e-3


@pytest.mark.parametrize("scheme", ["w8", "w4-block"])
def test_artifacts_of_it_are_made_measured_and_looked_through_like_any_other(
    olmo2: tuple[Ground, RecordingReporter], tmp_path: Path, scheme: OnnxScheme
) -> None:
    ground, _ = olmo2
    params = OnnxAssembleParams(name="q", scheme=scheme, session=SESSION, keep=("*.0.down",))
    artifact = ground.assembled(tmp_path / "artifact", params)
    inputs = {"base": ground.base, "data": ground.data, "baseline": ground.base, "assemble": artifact}
    (tmp_path / "measured").mkdir()
    measuring.artifact(MEASURING, inputs, tmp_path / "measured", reporter := RecordingReporter())
    census = load_census(tmp_path / "measured")
    assert census.fallen_back == ()
    assert {unit for unit, found in census.units.items() if found.found == "float"} == {"model.layers.0.down"}
    measured = load_measurement(tmp_path / "measured").kl
    assert measured is not None
    assert 0 < measured.mean < (0.05 if scheme == "w8" else 2.0)
    assert reporter.codes() == []
    told = json.loads((artifact / ARTIFACT_FOLDER / PROVENANCE_FILE).read_text())
    assert told["builder"].startswith("torch 2")


def test_in_w8a8_it_computes_what_the_emulation_says(
    olmo2: tuple[Ground, RecordingReporter], tmp_path: Path
) -> None:
    ground, _ = olmo2
    folders = {"source": ground.source, "data": ground.data, "codes": tmp_path / "codes"}
    folders["codes"].mkdir()
    pieces = list(np.random.default_rng(1).integers(0, VOCABULARY, (8, 32)).astype(np.int32))
    save_windows(ground.data / CALIBRATION_FILE, make_windows(pieces, [PACKED] * 8))
    params = QuantizeParams(candidates=(int8_scheme("w8a8"),), device="cpu", batch_tokens=128)
    quantize.run(params, folders, folders["codes"], RecordingReporter())
    artifact = assembled(ground, folders["codes"], tmp_path / "artifact")
    graph, expected = in_onnx(artifact, BASIC), emulated(ground, folders["codes"], tmp_path / "progress")
    lossless = in_torch(ground.model, W8A8_IDS[None], np.ones((1, W8A8_IDS.size), dtype=np.int64))[0]
    assert np.abs(graph - expected).mean() < 0.1 * np.abs(expected - lossless).mean()


def test_onnxruntime_genai_runs_it_to_the_same_tokens(
    olmo2: tuple[Ground, RecordingReporter], tmp_path: Path
) -> None:
    params = OnnxAssembleParams(name="fp32", scheme="fp32", session=SESSION)
    folder = olmo2[0].assembled(tmp_path / "artifact", params) / ARTIFACT_FOLDER
    settings = onnxruntime_genai.GeneratorParams(model := onnxruntime_genai.Model(str(folder)))
    settings.set_search_options(max_length=40, do_sample=False)
    generator = onnxruntime_genai.Generator(model, settings)
    generator.append_tokens(IDS)
    while not generator.is_done():
        generator.generate_next_token()
    told = list(generator.get_sequence(0))[len(IDS) :]
    ours = generate(OnnxModel(folder, SESSION), IDS, 40 - len(IDS), frozenset({2}))
    assert len(told) > 1
    assert ours[: len(told)] == told


def test_a_cache_that_grows_can_be_cut(olmo2: tuple[Ground, RecordingReporter]) -> None:
    sequel = OnnxModel(load_base(olmo2[0].base).folder, SESSION).start(30)
    ids = np.array(IDS)
    sequel.logits(ids[:8])
    once = sequel.logits(ids[8:14])
    sequel.logits(ids[14:])
    sequel.back_to(8)
    assert np.abs(sequel.logits(ids[8:14]) - once).max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stablelm", "starcoder2", "cohere", "glm"])
def test_families_that_are_not_listed_are_exported_and_quantized_as_well(kind: str, tmp_path: Path) -> None:
    ground, reporter = exported(tmp_path, kind)  # which holds the graph against torch
    assert reporter.codes() == ["graph-exported-by-torch"]
    linears = load_base(ground.base).linears
    assert linears[-1].unit == "lm_head"
    params = OnnxAssembleParams(name="q", scheme="w8", session=SESSION)
    ground.assembled(tmp_path / "artifact", params)


def test_a_model_without_the_head_that_is_looked_for_is_refused_before_anything_is_made(
    tmp_path: Path,
) -> None:
    model = random_model(tmp_path / "model", tiny_config("olmo2", num_hidden_layers=1))
    exporting.require_graph(model, FAMILIES["olmo2"])
    with pytest.raises(RecipeError, match="no ONNX graph can be made of Olmo2ForCausalLM") as refused:
        exporting.require_graph(model, replace(FAMILIES["olmo2"], outside=("embed_out",)))
    assert "format: gptq" in refused.value.hint
    assert "LlamaForCausalLM" in refused.value.hint


def test_what_torch_cannot_export_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stand_in.py").write_text(f"raise SystemExit('{REFUSAL} GuardError: tokens != 3')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "work").mkdir()
    program = replace(exporting.EXPORTER, module="stand_in")
    with pytest.raises(QuantizationError, match=r"torch\.onnx\.export does not take.*GuardError") as refused:
        exporting.export_graph_folder(BUILD, tmp_path, tmp_path / "graph", tmp_path / "work", program)
    assert "format: gptq" in refused.value.hint
    assert not (tmp_path / "graph").exists()


def test_for_a_gpu_it_is_refused(tmp_path: Path) -> None:
    model = random_model(tmp_path / "model", tiny_config("olmo2", num_hidden_layers=1))
    on_gpu = BUILD.model_copy(update={"provider": "cuda", "precision": "fp16"})
    with pytest.raises(RecipeError, match="for processors only"):
        exporting.export_graph_folder(on_gpu, model, tmp_path / "graph", tmp_path)


def test_its_settings_for_genai_say_that_the_cache_grows(olmo2: tuple[Ground, RecordingReporter]) -> None:
    told = json.loads((load_base(olmo2[0].base).folder / GENAI_CONFIG).read_text())
    assert told["search"]["past_present_share_buffer"] is False
    assert told["model"]["type"] == "decoder"
    assert told["model"]["eos_token_id"] == 2
    assert told["model"]["context_length"] == 256
    assert (told["model"]["decoder"]["num_key_value_heads"], told["model"]["decoder"]["head_size"]) == (2, 16)
