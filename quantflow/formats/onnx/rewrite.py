"""A graph's float linears replaced by quantized ones, product by product."""

from collections.abc import Mapping

import numpy as np
from onnx import NodeProto, helper

from quantflow.errors import QuantizationError
from quantflow.formats.onnx.constants import Constants
from quantflow.formats.onnx.graph_file import GraphFile, Source
from quantflow.formats.onnx.linears import GraphLinear
from quantflow.formats.onnx.nbits import CONTRIB, nbits_node
from quantflow.formats.onnx.plans import Int8Plan, NBitsPlan, Planned
from quantflow.formats.onnx.qdq import Qdq

OLDEST_OPSET = 13
"""The first in which QuantizeLinear and DequantizeLinear take a scale for each channel."""


def rewrite(
    graph: GraphFile, linears: tuple[GraphLinear, ...], planned: Mapping[str, Planned], accuracy_level: int
) -> dict[str, Source]:
    """Change the graph's nodes and declare its new constants; what is not planned stays.

    Args:
        graph: The lossless graph; its `model` is changed.
        linears: Its linear layers.
        planned: Name of a weight → what it becomes.
        accuracy_level: What MatMulNBits is to compute in.

    Returns:
        New constants → where their values come from.

    Raises:
        QuantizationError: The graph's opset is too old.
    """
    require_opset(graph)
    by_weight = {linear.weight: linear for linear in linears}
    constants = Constants(graph)
    qdq = Qdq(constants)
    nodes: list[NodeProto] = []
    kept_constants: set[str] = set()
    for node in graph.model.graph.node:
        name = node.input[1] if node.op_type == "MatMul" else ""
        if name not in planned:
            if not _is_tied_embedding(node, planned):
                nodes.append(_copy(node))
                kept_constants.update(node.input)
            else:
                _untie(node, constants)
            continue
        linear, plan = by_weight[name], planned[name]
        if isinstance(plan, Int8Plan):
            nodes += qdq.nodes(node, linear, plan)
        else:
            nodes.append(nbits_node(node, linear, plan, constants, accuracy_level))
    del graph.model.graph.node[:]
    graph.model.graph.node.extend(nodes)
    # A weight that something else reads, too, stays for that as it is.
    for index in reversed(range(len(graph.model.graph.initializer))):
        name = graph.model.graph.initializer[index].name
        if name in planned and name not in kept_constants:
            del graph.model.graph.initializer[index]
    if any(isinstance(plan, NBitsPlan) for plan in planned.values()):
        _import_contrib(graph)
    return constants.sources


def require_opset(graph: GraphFile) -> None:
    """Refuse a graph in which weights per channel cannot be written.

    Raises:
        QuantizationError: Its opset is too old.
    """
    if graph.opset < OLDEST_OPSET:
        raise QuantizationError(
            f"the graph has opset {graph.opset}; scales for each channel need {OLDEST_OPSET}",
            where=str(graph.path),
            hint="Make it with a newer onnxruntime-genai.",
        )


def _is_tied_embedding(node: NodeProto, planned: Mapping[str, Planned]) -> bool:
    """Whether a node makes the embedding out of the head's weight, which is replaced by codes."""
    return node.op_type == "Transpose" and node.input[0] in planned


def _untie(node: NodeProto, constants: Constants) -> None:
    """Give the embedding a constant of its own: it stays in floating point."""
    graph, weight = constants.graph, node.input[0]
    shape = tuple(reversed(graph.shape(weight)))
    name = node.output[0]
    dtype = graph.initializers[weight].data_type
    constants.add(name, dtype, shape, lambda: np.ascontiguousarray(graph.read(weight).T))


def _copy(node: NodeProto) -> NodeProto:
    copied = NodeProto()  # the graph's own go when it gets its new ones
    copied.CopyFrom(node)
    return copied


def _import_contrib(graph: GraphFile) -> None:
    if not any(opset.domain == CONTRIB for opset in graph.model.opset_import):
        graph.model.opset_import.append(helper.make_opsetid(CONTRIB, 1))
