"""Graphs on disk: read without their tensors, written one tensor at a time, refused where damaged."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from quantflow.errors import ArtifactError
from quantflow.formats.onnx.graph_file import GraphFile, declare, write_graph
from quantflow.formats.onnx.params import DATA_FILE, GRAPH_FILE
from tests.formats.onnx.graphs import DOWN_WEIGHT, product_graph, random_weight


def test_a_tensor_comes_back_with_its_shape_and_in_pieces(tmp_path: Path) -> None:
    weight = random_weight(6, 64)
    graph = product_graph(tmp_path / "graph", weight)
    assert graph.shape(DOWN_WEIGHT) == (64, 6)
    assert np.array_equal(graph.read(DOWN_WEIGHT), weight.T.numpy())
    assert b"".join(graph.chunks(DOWN_WEIGHT)) == weight.T.contiguous().numpy().tobytes()
    assert graph.opset == 21


def test_what_is_written_holds_changed_copied_and_new_tensors(tmp_path: Path) -> None:
    graph = product_graph(tmp_path / "graph", random_weight(6, 64))
    before = graph.read(DOWN_WEIGHT)
    graph.model.graph.initializer.append(declare("new", onnx.TensorProto.INT8, (3, 700)))
    graph.model.graph.initializer.append(declare("scalar", onnx.TensorProto.FLOAT, ()))
    (tmp_path / "written").mkdir()
    new = np.arange(2100, dtype=np.int8).reshape(3, 700)
    write_graph(
        graph, {"new": lambda: new, "scalar": lambda: np.array(2.5, dtype=np.float32)}, tmp_path / "written"
    )
    written = GraphFile(tmp_path / "written" / GRAPH_FILE)
    assert np.array_equal(written.read(DOWN_WEIGHT), before)
    assert np.array_equal(written.read("new"), new)
    assert written.read("scalar") == 2.5
    assert written.initializers["scalar"].raw_data  # small ones stay where constants are folded
    onnx.checker.check_model(str(tmp_path / "written" / GRAPH_FILE))


def test_constants_of_one_source_lie_in_the_file_once(tmp_path: Path) -> None:
    graph = product_graph(tmp_path / "graph", random_weight(6, 64))
    graph.model.graph.initializer.append(declare("one", onnx.TensorProto.INT8, (50, 100)))
    graph.model.graph.initializer.append(declare("two", onnx.TensorProto.INT8, (50, 100)))
    (tmp_path / "written").mkdir()
    made = []

    def values() -> NDArray[np.int8]:
        made.append(1)
        return np.ones((50, 100), dtype=np.int8)

    write_graph(graph, {"one": values, "two": values}, tmp_path / "written")
    written = GraphFile(tmp_path / "written" / GRAPH_FILE)
    assert np.array_equal(written.read("one"), written.read("two"))
    assert len(made) == 1
    assert (tmp_path / "written" / DATA_FILE).stat().st_size < 2 * 4096 + 5000


def test_equal_graphs_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        graph = product_graph(tmp_path / f"{name}-base", random_weight(6, 64))
        (tmp_path / name).mkdir()
        write_graph(graph, {}, tmp_path / name)
    for file in (GRAPH_FILE, DATA_FILE):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_tensors_that_are_cut_short_are_refused_with_the_tensor_that_is_missing(tmp_path: Path) -> None:
    product_graph(tmp_path / "graph", random_weight(6, 64))
    data = tmp_path / "graph" / DATA_FILE
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=f"cut short: {DOWN_WEIGHT}"):
        GraphFile(tmp_path / "graph" / GRAPH_FILE)


def test_missing_tensors_and_what_is_no_graph_are_refused(tmp_path: Path) -> None:
    product_graph(tmp_path / "graph", random_weight(6, 64))
    (tmp_path / "graph" / DATA_FILE).unlink()
    with pytest.raises(ArtifactError, match=r"there is no model\.onnx\.data"):
        GraphFile(tmp_path / "graph" / GRAPH_FILE)
    (tmp_path / "graph" / GRAPH_FILE).write_bytes(b"\x0f not protobuf")
    with pytest.raises(ArtifactError, match="no ONNX graph"):
        GraphFile(tmp_path / "graph" / GRAPH_FILE)
    with pytest.raises(ArtifactError, match="no ONNX graph"):
        GraphFile(tmp_path / "nowhere" / GRAPH_FILE)


def test_tensors_outside_the_folder_are_refused(tmp_path: Path) -> None:
    product_graph(tmp_path / "graph", random_weight(6, 64))
    path = tmp_path / "graph" / GRAPH_FILE
    model = onnx.load(str(path), load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../graph/model.onnx.data"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ArtifactError, match="outside its folder"):
        GraphFile(path)


def test_nothing_is_added_to_a_file_that_is_there(tmp_path: Path) -> None:
    graph = product_graph(tmp_path / "graph", random_weight(6, 64))
    with pytest.raises(FileExistsError):
        write_graph(graph, {}, tmp_path / "graph")


def one_constant(folder: Path, tensor: onnx.TensorProto, held: int) -> GraphFile:
    """A graph of one constant, beside a file of so many bytes."""
    (folder / "data").write_bytes(bytes(held))
    node = onnx.helper.make_node("Identity", [tensor.name], ["y"])
    graph = onnx.helper.make_graph([node], "g", [], [], [tensor])
    (folder / GRAPH_FILE).write_bytes(onnx.helper.make_model(graph).SerializeToString())
    return GraphFile(folder / GRAPH_FILE)


def outside(dtype: int, dims: tuple[int, ...], **entries: object) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name="w", data_type=dtype, dims=dims)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


@pytest.mark.parametrize(
    ("dtype", "held"), [(onnx.TensorProto.INT4, 8), (onnx.TensorProto.UINT4, 8), (onnx.TensorProto.INT8, 15)]
)
@pytest.mark.parametrize("said", [True, False])
def test_values_of_four_bits_are_packed_and_a_length_may_be_left_out(
    tmp_path: Path, dtype: int, held: int, said: bool
) -> None:
    length = {"length": held} if said else {}
    graph = one_constant(tmp_path, outside(dtype, (3, 5), location="data", **length), held)
    assert graph.weight_bytes == held


FLOAT = onnx.TensorProto.FLOAT


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (outside(FLOAT, (3,), length=12), "what it says of w is no tensor"),
        (outside(FLOAT, (3,), location="data", offset="x", length=12), "what it says of w is no tensor"),
        (outside(FLOAT, (3,), location="data", offset=-4, length=12), "what it says of w is no tensor"),
        (outside(FLOAT, (-3, -1), location="data", length=12), "what it says of w is no tensor"),
        (outside(99, (3,), location="data", length=12), "what it says of w is no tensor"),
        (outside(FLOAT, (3,), location="d" * 5000, length=12), "its tensors are missing"),
        (onnx.TensorProto(name="w", data_type=FLOAT, dims=[3], raw_data=b"1234"), "do not fit its shape"),
        (onnx.TensorProto(name="w", data_type=FLOAT, dims=[3], float_data=[1.0]), "is no tensor"),
    ],
)
def test_what_is_no_tensor_is_refused(tmp_path: Path, tensor: onnx.TensorProto, words: str) -> None:
    with pytest.raises(ArtifactError, match=words):
        one_constant(tmp_path, tensor, 12)
