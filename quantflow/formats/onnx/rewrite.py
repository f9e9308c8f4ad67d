"""A graph's float linears replaced by quantized ones, product by product.

QuantizeLinear and DequantizeLinear: https://onnx.ai/onnx/operators/. MatMulNBits, ONNX Runtime's own:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper

from quantflow.errors import QuantizationError
from quantflow.formats.onnx.graph_file import GraphFile, Source, declare
from quantflow.formats.onnx.linears import GraphLinear
from quantflow.formats.onnx.nbits import packed_codes, packed_zero_points
from quantflow.quantize.codes import LinearCodes
from quantflow.quantize.int8 import InputRange, Int8Linear

OLDEST_OPSET = 13
"""The first in which QuantizeLinear and DequantizeLinear take a scale for each channel."""
CONTRIB = "com.microsoft"


@dataclass(frozen=True)
class Int8Plan:
    """A linear that becomes INT8 per channel, as far as it is known before its weights are read.

    Attributes:
        load: Makes or reads it, whenever one of its constants is written.
        input: How its input is quantized; None where only the weight is.
        floating_channels: Input channels that stay in floating point.
    """

    load: Callable[[], Int8Linear]
    input: InputRange | None = None
    floating_channels: tuple[int, ...] = ()


@dataclass(frozen=True)
class NBitsPlan:
    """A linear that becomes a MatMulNBits.

    Attributes:
        load: Makes or reads its codes, whenever one of its constants is written.
        bits: Width of a code, 4 or 8.
        block_size: Input channels that share a scale.
        symmetric: Whether zero points are all in the middle of the codes, and not written.
    """

    load: Callable[[], LinearCodes]
    bits: int
    block_size: int
    symmetric: bool = False


Planned = Int8Plan | NBitsPlan


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
    if graph.opset < OLDEST_OPSET:
        raise QuantizationError(
            f"the graph has opset {graph.opset}; scales for each channel need {OLDEST_OPSET}",
            where=str(graph.path),
            hint="Make it with a newer onnxruntime-genai.",
        )
    by_weight = {linear.weight: linear for linear in linears}
    changed: dict[str, Source] = {}
    nodes: list[NodeProto] = []
    rounded_inputs: dict[tuple[str, InputRange], str] = {}
    kept_constants: set[str] = set()
    for node in graph.model.graph.node:
        name = node.input[1] if node.op_type == "MatMul" else ""
        if name not in planned:
            if not _is_tied_embedding(node, planned):
                nodes.append(_copy(node))
                kept_constants.update(node.input)
            else:
                _untie(graph, node, changed)
            continue
        linear, plan = by_weight[name], planned[name]
        if isinstance(plan, Int8Plan):
            nodes += _int8(graph, node, linear, plan, changed, rounded_inputs)
        else:
            nodes.append(_nbits(graph, node, linear, plan, changed, accuracy_level))
    del graph.model.graph.node[:]
    graph.model.graph.node.extend(nodes)
    # A weight that something else reads, too, stays for that as it is.
    for index in reversed(range(len(graph.model.graph.initializer))):
        name = graph.model.graph.initializer[index].name
        if name in planned and name not in kept_constants:
            del graph.model.graph.initializer[index]
    if any(isinstance(plan, NBitsPlan) for plan in planned.values()):
        _import_contrib(graph)
    return changed


def _is_tied_embedding(node: NodeProto, planned: Mapping[str, Planned]) -> bool:
    """Whether a node makes the embedding out of the head's weight, which is replaced by codes."""
    return node.op_type == "Transpose" and node.input[0] in planned


def _untie(graph: GraphFile, node: NodeProto, changed: dict[str, Source]) -> None:
    """Give the embedding a constant of its own: it stays in floating point."""
    weight = node.input[0]
    shape = tuple(reversed(graph.shape(weight)))
    name = node.output[0]
    dtype = graph.initializers[weight].data_type
    _constant(graph, changed, name, dtype, shape, lambda: np.ascontiguousarray(graph.read(weight).T))


def _int8(
    graph: GraphFile,
    node: NodeProto,
    linear: GraphLinear,
    plan: Int8Plan,
    changed: dict[str, Source],
    rounded_inputs: dict[tuple[str, InputRange], str],
) -> list[NodeProto]:
    """A product of dequantized weights with inputs rounded or not, floating channels beside it."""
    stem, source, output = _stem(linear), node.input[0], node.output[0]
    nodes: list[NodeProto] = []
    rounded = source
    if plan.input is not None:
        key = (source, plan.input)
        if key not in rounded_inputs:
            rounded_inputs[key] = _rounding(graph, linear, source, plan.input, changed, nodes)
        rounded = rounded_inputs[key]
    load = plan.load
    add = partial(_constant, graph, changed)
    q = add(
        f"{stem}.quantized", TensorProto.INT8, (linear.inputs, linear.outputs), lambda: _array(load().q.T)
    )
    scales = add(f"{stem}.scale", TensorProto.FLOAT, (linear.outputs,), lambda: _array(load().scales))
    zero = add(f"{stem}.zero_point", TensorProto.INT8, (linear.outputs,), _zeros(linear.outputs))
    weight = f"{stem}.dequantized"
    nodes.append(
        helper.make_node(
            "DequantizeLinear", [q, scales, zero], [weight], name=f"{stem}/DequantizeLinear", axis=1
        )
    )
    channels = plan.floating_channels
    product = f"{stem}.quantized_part" if channels else output
    nodes.append(helper.make_node("MatMul", [rounded, weight], [product], name=node.name))
    if channels:
        indices = np.array(channels, dtype=np.int64)
        where = add(f"{stem}.floating_channels", TensorProto.INT64, (len(channels),), lambda: indices)
        shape = (len(channels), linear.outputs)
        apart = add(
            f"{stem}.floating_weight", TensorProto.FLOAT, shape, lambda: _array(load().floating_weight.T)
        )
        chosen, part = f"{stem}.floating_input", f"{stem}.floating_part"
        nodes += [
            helper.make_node("Gather", [source, where], [chosen], name=f"{stem}/Gather", axis=-1),
            helper.make_node("MatMul", [chosen, apart], [part], name=f"{stem}/floating/MatMul"),
            helper.make_node("Add", [product, part], [output], name=f"{stem}/Add"),
        ]
    return nodes


def _rounding(
    graph: GraphFile,
    linear: GraphLinear,
    source: str,
    how: InputRange,
    changed: dict[str, Source],
    nodes: list[NodeProto],
) -> str:
    """Nodes that round an input, shared by all products that read it so; the rounded input's name."""
    stem = f"{_stem(linear)}.input"
    add = partial(_constant, graph, changed)
    scale = add(f"{stem}.scale", TensorProto.FLOAT, (), lambda: np.array(how.scale, dtype=np.float32))
    zero = add(f"{stem}.zero_point", TensorProto.UINT8, (), lambda: np.array(how.zero_point, dtype=np.uint8))
    before = source
    if how.reduced:  # QuantizeLinear itself would go on to 255
        low, high = (np.array(v, dtype=np.float32) for v in (how.lowest_value, how.highest_value))
        lowest = add(f"{stem}.lowest", TensorProto.FLOAT, (), lambda: low)
        highest = add(f"{stem}.highest", TensorProto.FLOAT, (), lambda: high)
        before = f"{stem}.clipped"
        nodes.append(helper.make_node("Clip", [source, lowest, highest], [before], name=f"{stem}/Clip"))
    codes, rounded = f"{stem}.quantized", f"{stem}.dequantized"
    nodes += [
        helper.make_node("QuantizeLinear", [before, scale, zero], [codes], name=f"{stem}/QuantizeLinear"),
        helper.make_node(
            "DequantizeLinear", [codes, scale, zero], [rounded], name=f"{stem}/DequantizeLinear"
        ),
    ]
    return rounded


def _nbits(
    graph: GraphFile,
    node: NodeProto,
    linear: GraphLinear,
    plan: NBitsPlan,
    changed: dict[str, Source],
    accuracy_level: int,
) -> NodeProto:
    """The product as one MatMulNBits."""
    stem, load = _stem(linear), plan.load
    blocks = linear.inputs // plan.block_size
    blob = plan.block_size * plan.bits // 8
    add = partial(_constant, graph, changed)
    floats = graph.initializers[linear.weight].data_type  # scales are of the activations' type
    dtype = graph.dtype(linear.weight)
    shape = (linear.outputs, blocks, blob)
    packed = add(f"{stem}.quantized", TensorProto.UINT8, shape, lambda: packed_codes(load()))
    scales = add(
        f"{stem}.scale", floats, (linear.outputs, blocks), lambda: load().scales.numpy().astype(dtype)
    )
    inputs = [node.input[0], packed, scales]
    if not plan.symmetric:  # left out, they are the middle of the codes
        points = (linear.outputs, -(-blocks * plan.bits // 8))
        name = f"{stem}.zero_point"
        inputs.append(add(name, TensorProto.UINT8, points, lambda: packed_zero_points(load())))
    return helper.make_node(
        "MatMulNBits",
        inputs,
        [node.output[0]],
        name=f"{node.name}NBits",
        domain=CONTRIB,
        K=linear.inputs,
        N=linear.outputs,
        bits=plan.bits,
        block_size=plan.block_size,
        accuracy_level=accuracy_level,
    )


def _copy(node: NodeProto) -> NodeProto:
    copied = NodeProto()  # the graph's own go when it gets its new ones
    copied.CopyFrom(node)
    return copied


def _stem(linear: GraphLinear) -> str:
    return linear.weight.removesuffix(".weight")


def _constant(
    graph: GraphFile,
    changed: dict[str, Source],
    name: str,
    dtype: int,
    shape: tuple[int, ...],
    source: Source,
) -> str:
    graph.model.graph.initializer.append(declare(name, dtype, shape))
    changed[name] = source
    return name


def _zeros(count: int) -> Source:
    return lambda: np.zeros(count, dtype=np.int8)


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    values: NDArray[Any] = tensor.contiguous().numpy()
    return values


def _import_contrib(graph: GraphFile) -> None:
    if not any(opset.domain == CONTRIB for opset in graph.model.opset_import):
        graph.model.opset_import.append(helper.make_opsetid(CONTRIB, 1))
