"""Graphs small enough to see through: products with constants under the builder's names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from quantflow.formats.onnx.graph_file import GraphFile, write_graph
from quantflow.formats.onnx.linears import GraphLinear, Part
from quantflow.formats.onnx.params import DATA_FILE, GRAPH_FILE
from quantflow.formats.onnx.plans import Planned
from quantflow.formats.onnx.rewrite import rewrite

DOWN = "model.layers.0.mlp.down_proj"
DOWN_WEIGHT = "model.layers.0.mlp.down_proj.MatMul.weight"
HEAD_WEIGHT = "lm_head.MatMul.weight"


def random_weight(outputs: int, inputs: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed))


def product_graph(folder: Path, weight: torch.Tensor, *, opset: int = 21) -> GraphFile:
    """x `[tokens, in]` times a weight `[out, in]`, its values in a file beside the graph."""
    outputs, inputs = weight.shape
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", DOWN_WEIGHT], ["y"], name="/model/layers.0/mlp/down_proj/MatMul")],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["tokens", inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["tokens", outputs])],
        [numpy_helper.from_array(np.ascontiguousarray(weight.T.numpy()), DOWN_WEIGHT)],
    )
    return saved(folder, graph, opset)


def tied_graph(folder: Path, weight: torch.Tensor) -> GraphFile:
    """Token ids `[tokens]` to logits `[tokens, vocab]`; the embedding is the head's weight, transposed."""
    vocabulary, _ = weight.shape
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", [HEAD_WEIGHT], ["table"], perm=[1, 0]),
            helper.make_node("Gather", ["table", "ids"], ["embedded"]),
            helper.make_node("MatMul", ["embedded", HEAD_WEIGHT], ["logits"], name="/lm_head/MatMul"),
        ],
        "tied",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["tokens"])],
        [
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["tokens", vocabulary]),
            helper.make_tensor_value_info("embedded", TensorProto.FLOAT, ["tokens", weight.shape[1]]),
        ],
        [numpy_helper.from_array(np.ascontiguousarray(weight.T.numpy()), HEAD_WEIGHT)],
    )
    return saved(folder, graph, 21)


def saved(folder: Path, graph: Any, opset: int) -> GraphFile:
    folder.mkdir(parents=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.save(
        model,
        str(folder / GRAPH_FILE),
        save_as_external_data=True,
        location=DATA_FILE,
        size_threshold=0,
    )
    return GraphFile(folder / GRAPH_FILE)


def down_linear(weight: torch.Tensor) -> GraphLinear:
    outputs, inputs = weight.shape
    return GraphLinear(DOWN_WEIGHT, "model.layers.0.down", (Part(DOWN),), inputs, outputs)


def head_linear(weight: torch.Tensor) -> GraphLinear:
    outputs, inputs = weight.shape
    return GraphLinear(HEAD_WEIGHT, "lm_head", (Part("lm_head"),), inputs, outputs)


def rewritten(
    graph: GraphFile, linear: GraphLinear, plan: Planned, folder: Path, *, accuracy_level: int = 0
) -> GraphFile:
    """Replace the one product and write the graph."""
    changed = rewrite(graph, (linear,), {linear.weight: plan}, accuracy_level)
    folder.mkdir(parents=True)
    write_graph(graph, changed, folder)
    return GraphFile(folder / GRAPH_FILE)


def run_graph(
    folder: Path, given: Mapping[str, NDArray[Any]], *, level: str = "BASIC", optimised: Path | None = None
) -> list[NDArray[Any]]:
    """All outputs, under `ORT_ENABLE_<level>` and with the entries that QuantFlow pins."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.x64quantprecision", "1")
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
    session = onnxruntime.InferenceSession(
        str(folder / GRAPH_FILE), options, providers=["CPUExecutionProvider"]
    )
    outputs: list[NDArray[Any]] = session.run(None, dict(given))
    return outputs
