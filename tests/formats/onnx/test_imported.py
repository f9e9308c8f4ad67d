"""Graphs that somebody else made: looked at, tried, and refused by name where they cannot be run here."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from quantflow.errors import ArtifactError
from quantflow.formats.assembly import ARTIFACT_FOLDER, ImportedScheme, load_assembly
from quantflow.formats.onnx.base import load_base
from quantflow.formats.onnx.census_record import load_census, load_expectation
from quantflow.formats.onnx.graph_file import GraphFile
from quantflow.formats.onnx.imported import imported_scheme, run
from quantflow.formats.onnx.params import (
    DATA_FILE,
    GENAI_CONFIG,
    GRAPH_FILE,
    OnnxAssembleParams,
    OnnxImportParams,
)
from quantflow.formats.onnx.products import Product, graph_products, unknown_products
from quantflow.measure import onnx as measure
from quantflow.measure.measurement import load_measurement
from quantflow.measure.onnx_params import OnnxMeasureParams
from tests.formats.onnx.conftest import SESSION, Ground
from tests.formats.onnx.graphs import product_graph, random_weight
from tests.reporting import RecordingReporter
from tests.tiny_models import tiny_config

MEASURE = OnnxMeasureParams(session=SESSION, instruction_set="avx2")


def imported(ground: Ground, folder: Path, output: Path, reporter: RecordingReporter | None = None) -> Path:
    """Run the stage on a folder."""
    output.mkdir(parents=True, exist_ok=True)
    files = {path.name: str(path) for path in sorted(folder.iterdir())}
    params = OnnxImportParams(name="theirs", folder=str(folder), files=files, session=SESSION)
    run(params, {"source": ground.source}, output, reporter or RecordingReporter())
    return output


@pytest.fixture
def bare(ground: Ground, tmp_path: Path) -> Path:
    """The lossless graph as a folder of somebody else's: graph, tensors and settings, nothing else."""
    return Path(shutil.copytree(load_base(ground.base).folder, tmp_path / "bare"))


def changed(folder: Path, change: Callable[[Any], None]) -> Path:
    model = onnx.load(str(folder / GRAPH_FILE), load_external_data=False)
    change(model)
    (folder / GRAPH_FILE).write_bytes(model.SerializeToString())
    return folder


@pytest.mark.parametrize(
    ("scheme", "method", "bits", "block"),
    [("w4-block", "weights-int4", 4, 32), ("w8-block", "weights-int8", 8, 32), ("fp32", None, 32, None)],
)
def test_what_a_graph_is_is_found_out_from_the_graph(
    ground: Ground, tmp_path: Path, scheme: str, method: str | None, bits: int, block: int | None
) -> None:
    plan = OnnxAssembleParams.model_validate({"name": "a", "scheme": scheme, "session": SESSION})
    made = ground.assembled(tmp_path / "made", plan)
    output = imported(ground, made / ARTIFACT_FOLDER, tmp_path / "imported")
    found = load_assembly(output).imported
    assert found is not None
    assert (found.method, found.bits, found.group_size) == (method, bits, block)
    ours, theirs = load_expectation(made), load_expectation(output)
    assert theirs.float_share == ours.float_share
    assert theirs.computes == ours.computes


def test_an_import_is_measured_as_what_was_made_here_is_and_its_census_taken(
    ground: Ground, tmp_path: Path
) -> None:
    plan = OnnxAssembleParams(name="a", scheme="w4-block", session=SESSION)
    made = ground.assembled(tmp_path / "made", plan)
    theirs = imported(ground, made / ARTIFACT_FOLDER, tmp_path / "imported")
    figures = []
    for name, assembled in (("ours", made), ("theirs", theirs)):
        (tmp_path / name).mkdir()
        inputs = {"base": ground.base, "data": ground.data, "assemble": assembled}
        measure.artifact(MEASURE, inputs, tmp_path / name, RecordingReporter())
        figures.append(load_measurement(tmp_path / name))
        assert not load_census(tmp_path / name).fallen_back
    assert figures[0].kl == figures[1].kl
    assert load_census(tmp_path / "theirs").units


def test_constants_by_other_names_are_followed_to_what_runs(ground: Ground, tmp_path: Path) -> None:
    plan = OnnxAssembleParams(name="a", scheme="w4-block", session=SESSION)
    made = ground.assembled(tmp_path / "made", plan) / ARTIFACT_FOLDER
    names = {t.name: f"onnx::{n}" for n, t in enumerate(GraphFile(made / GRAPH_FILE).initializers.values())}

    def rename(model: Any) -> None:
        for tensor in model.graph.initializer:
            tensor.name = names[tensor.name]
        for node in model.graph.node:
            for place, given in enumerate(node.input):
                node.input[place] = names.get(given, given)

    folder = changed(Path(shutil.copytree(made, tmp_path / "theirs")), rename)
    for path in folder.iterdir():
        path.chmod(0o644)
    output = imported(ground, folder, tmp_path / "imported")
    (tmp_path / "measured").mkdir()
    inputs = {"base": ground.base, "data": ground.data, "assemble": output}
    measure.artifact(MEASURE, inputs, tmp_path / "measured", RecordingReporter())
    census = load_census(tmp_path / "measured")
    assert len(census.units) == len(graph_products(GraphFile(folder / GRAPH_FILE)))
    assert not census.fallen_back


def test_a_library_that_settings_name_is_not_loaded_and_said(
    ground: Ground, bare: Path, tmp_path: Path
) -> None:
    settings = json.loads((bare / GENAI_CONFIG).read_text())
    settings["model"]["decoder"]["session_options"]["custom_ops_library"] = str(tmp_path / "evil.so")
    (bare / GENAI_CONFIG).write_text(json.dumps(settings))
    reporter = RecordingReporter()
    imported(ground, bare, tmp_path / "imported", reporter)
    assert reporter.codes() == ["library-not-loaded", "artifact-imported"]


def scaled_weight(model: Any) -> None:
    """A weight that reaches its product by way of a multiplication, as hand-written dequantization does."""
    node = next(n for n in model.graph.node if n.op_type == "MatMul" and "down_proj" in n.name)
    model.graph.initializer.append(helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0]))
    scaling = helper.make_node("Mul", [node.input[1], "one"], ["scaled"])
    node.input[1] = "scaled"
    model.graph.node.insert(0, scaling)


def test_a_product_that_nothing_is_known_of_leaves_the_tightest_margins_and_the_census_open(
    ground: Ground, bare: Path, tmp_path: Path
) -> None:
    assert not unknown_products(GraphFile(bare / GRAPH_FILE))
    reporter = RecordingReporter()
    output = imported(ground, changed(bare, scaled_weight), tmp_path / "imported", reporter)
    assert reporter.codes() == ["artifact-imported", "products-not-known"]
    found = load_assembly(output).imported
    assert found is not None and found.method is None and found.dtype is None
    unknown = load_expectation(output).unknown
    assert len(unknown) == 1 and "down_proj" in unknown[0]


@pytest.mark.parametrize("operator", ["MatMulBnb4", "QMoE", "Conv", "FusedMatMul"])
def test_operators_that_multiply_by_weights_are_not_passed_over(tmp_path: Path, operator: str) -> None:
    graph = product_graph(tmp_path / "product", random_weight(6, 64))
    assert not unknown_products(graph)
    node = graph.model.graph.node[0]
    node.op_type, node.domain = operator, "com.microsoft"
    tensor = graph.initializers[node.input[1]]
    tensor.data_type = TensorProto.FLOAT8E4M3FN  # of which nothing is known where the operator is
    assert unknown_products(graph) == (node.name,)


def test_most_weights_are_told_by_their_width_however_they_are_grouped() -> None:
    products = (
        Product("a", "weights-int8", 8, 32, 30),
        Product("b", "weights-int8", 8, 64, 31),
        Product("c", "weights-int4", 4, 32, 39),
    )
    assert imported_scheme(products) == ImportedScheme("weights-int8", 8, 64, None)


def foreign(model: Any) -> None:
    model.graph.node[-1].domain = "com.example"


def without_mask(model: Any) -> None:
    for node in model.graph.node:
        for place, given in enumerate(node.input):
            node.input[place] = "tokens_seen" if given == "attention_mask" else given
    next(i for i in model.graph.input if i.name == "attention_mask").name = "tokens_seen"


def another_input(model: Any) -> None:
    model.graph.input.append(helper.make_tensor_value_info("beam_idx", TensorProto.INT64, ["batch"]))


def another_cache(model: Any) -> None:
    for node in model.graph.node:
        if node.op_type == "GroupQueryAttention":
            node.op_type = "MultiHeadAttention"


def open_vocabulary(model: Any) -> None:
    logits = next(made for made in model.graph.output if made.name == "logits")
    logits.type.tensor_type.shape.dim[-1].Clear()


def outside(model: Any) -> None:
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = "../elsewhere.data" if entry.key == "location" else entry.value


def outside_in_an_attribute(model: Any) -> None:
    tensor = TensorProto(name="hidden", data_type=TensorProto.FLOAT, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    model.graph.node.append(helper.make_node("Constant", [], ["unused"], value=tensor))


def open_head_sizes(model: Any) -> None:
    for given in model.graph.input:
        if given.name.startswith("past"):
            given.type.tensor_type.shape.dim[-1].Clear()


def fixed_head_sizes(model: Any) -> None:
    size = tiny_config().hidden_size // tiny_config().num_attention_heads
    for value in (*model.graph.input, *model.graph.output):
        if value.name.startswith(("past", "present")):
            value.type.tensor_type.shape.dim[-1].dim_value = size


def open_heads_of_cache(model: Any) -> None:
    for given in model.graph.input:
        if given.name.startswith("past"):
            given.type.tensor_type.shape.dim[1].Clear()


def lame(model: Any) -> None:
    product = next(node for node in model.graph.node if node.op_type == "MatMul")
    del product.input[1:]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (open_heads_of_cache, "does not say how many heads its cache has"),
        (lame, "ONNX Runtime cannot load it"),
        (foreign, "needs operators of a library of its own: com.example"),
        (without_mask, "the graph has no input attention_mask"),
        (another_input, "inputs that nothing is known of: beam_idx"),
        (another_cache, "keeps its cache in another way than by GroupQueryAttention"),
        (open_vocabulary, "does not say how large its vocabulary is"),
        (outside, r"its tensors lie in '\.\./elsewhere\.data', outside its folder"),
        (outside_in_an_attribute, r"its tensors lie in '/etc/passwd', outside its folder"),
    ],
)
def test_a_graph_that_cannot_be_run_here_is_refused_by_name(
    ground: Ground, bare: Path, tmp_path: Path, change: Callable[[Any], None], words: str
) -> None:
    with pytest.raises(ArtifactError, match=words) as refused:
        imported(ground, changed(bare, change), tmp_path / "imported")
    assert refused.value.where == str(bare / GRAPH_FILE)
    assert not any((tmp_path / "imported").iterdir())


def test_tensors_that_are_cut_short_are_refused(ground: Ground, bare: Path, tmp_path: Path) -> None:
    data = bare / DATA_FILE
    data.chmod(0o644)
    data.write_bytes(data.read_bytes()[:-5000])
    with pytest.raises(ArtifactError, match="is cut short"):
        imported(ground, bare, tmp_path / "imported")


def test_a_graph_without_the_size_of_a_head_is_refused(ground: Ground, bare: Path, tmp_path: Path) -> None:
    (bare / GENAI_CONFIG).unlink()
    with pytest.raises(ArtifactError, match="how large an attention head is"):
        imported(ground, changed(bare, open_head_sizes), tmp_path / "imported")


@pytest.mark.parametrize("settings", ["[]", '{"model": null}', "[" * 100_000])
def test_settings_of_another_shape_are_not_needed_where_the_graph_says_all(
    ground: Ground, bare: Path, tmp_path: Path, settings: str
) -> None:
    (bare / GENAI_CONFIG).write_text(settings)
    assert (
        load_assembly(imported(ground, changed(bare, fixed_head_sizes), tmp_path / "imported")).imported
        is not None
    )


def test_what_is_no_language_model_is_refused(ground: Ground, tmp_path: Path) -> None:
    product_graph(tmp_path / "product", random_weight(6, 64))
    with pytest.raises(ArtifactError, match="the graph has no input input_ids, input attention_mask"):
        imported(ground, tmp_path / "product", tmp_path / "imported")
