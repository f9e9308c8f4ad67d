"""Products of INT8 weights, inputs rounded or not, as QuantizeLinear, DequantizeLinear and MatMul.

https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html. ONNX Runtime finds them and multiplies in INT8.
"""

import numpy as np
from onnx import NodeProto, TensorProto, helper

from quantflow.formats.onnx.constants import Constants, array
from quantflow.formats.onnx.graph_file import Source
from quantflow.formats.onnx.linears import GraphLinear
from quantflow.formats.onnx.plans import Int8Plan
from quantflow.quantize.int8 import InputRange

AGAIN = "_again"
"""In the names of constants that stand in the graph twice, and in its file once."""


class Qdq:
    """Writes INT8 products; inputs that several read in one way are rounded once.

    Args:
        constants: Get codes, scales and ranges.
    """

    def __init__(self, constants: Constants) -> None:
        self._add = constants.add
        self._rounded: dict[tuple[str, InputRange], str] = {}
        self._sources: dict[str, tuple[Source, Source]] = {}

    def nodes(self, node: NodeProto, linear: GraphLinear, plan: Int8Plan) -> list[NodeProto]:
        """The nodes that compute what a float product did.

        Args:
            node: The float product.
            linear: What is known of it.
            plan: What it becomes.
        """
        source, output, stem = node.input[0], node.output[0], linear.stem
        nodes = self._inputs(source, stem, plan)
        parts = []
        for number, given in enumerate(self._inputs_of(source, plan)):
            nodes.append(self._weight(linear, plan, AGAIN * number))
            weight = nodes[-1].output[0]
            parts.append(f"{stem}.part_{number}")
            name = node.name if not number else f"{node.name}/remainder"
            nodes.append(helper.make_node("MatMul", [given, weight], [parts[-1]], name=name))
        if plan.floating_channels:
            parts.append(f"{stem}.floating_part")
            nodes += self._apart(source, parts[-1], linear, plan)
        if len(parts) == 1:
            nodes[-1].output[0] = output
        return [*nodes, *_summed(parts, output, stem)]

    def _inputs(self, source: str, stem: str, plan: Int8Plan) -> list[NodeProto]:
        """Nodes that round the input, and what that leaves of it, as far as no other product had them."""
        nodes: list[NodeProto] = []
        if plan.input is not None and (source, plan.input) not in self._rounded:
            nodes += self._rounding(f"{stem}.input", source, source, plan.input)
        if (
            plan.input is not None
            and plan.remainder is not None
            and (source, plan.remainder) not in self._rounded
        ):
            left = f"{stem}.left"
            rounded = self._rounded[source, plan.input]
            nodes.append(helper.make_node("Sub", [source, rounded], [left], name=f"{stem}/Sub"))
            nodes += self._rounding(f"{stem}.remainder", left, source, plan.remainder)
        return nodes

    def _inputs_of(self, source: str, plan: Int8Plan) -> list[str]:
        ranges = [how for how in (plan.input, plan.remainder) if how is not None]
        return [self._rounded[source, how] for how in ranges] or [source]

    def _weight(self, linear: GraphLinear, plan: Int8Plan, mark: str) -> NodeProto:
        """The node that dequantizes the weight, one for each product.

        ONNX Runtime 1.32 does not load a graph in which two products would share a constant that it has to
        shift to be unsigned.
        """
        stem, outputs = linear.stem, linear.outputs
        shape = (linear.inputs, outputs)
        codes, zeros = self._sources.setdefault(stem, (_codes(plan), _zeros(outputs)))
        q = self._add(f"{stem}.quantized{mark}", TensorProto.INT8, shape, codes)
        zero = self._add(f"{stem}.zero_point{mark}", TensorProto.INT8, (outputs,), zeros)
        scales = f"{stem}.scale"
        if not mark:
            self._add(scales, TensorProto.FLOAT, (outputs,), lambda: array(plan.load().scales))
        name, weight = f"{stem}/DequantizeLinear{mark}", f"{stem}.dequantized{mark}"
        return helper.make_node("DequantizeLinear", [q, scales, zero], [weight], name=name, axis=1)

    def _apart(self, source: str, output: str, linear: GraphLinear, plan: Int8Plan) -> list[NodeProto]:
        """The product of the channels that stay in floating point."""
        stem, load, channels = linear.stem, plan.load, plan.floating_channels
        indices = np.array(channels, dtype=np.int64)
        where = self._add(f"{stem}.floating_channels", TensorProto.INT64, indices.shape, lambda: indices)
        weight = self._add(
            f"{stem}.floating_weight",
            TensorProto.FLOAT,
            (len(channels), linear.outputs),
            lambda: array(load().floating_weight.T),
        )
        chosen = f"{stem}.floating_input"
        return [
            helper.make_node("Gather", [source, where], [chosen], name=f"{stem}/Gather", axis=-1),
            helper.make_node("MatMul", [chosen, weight], [output], name=f"{stem}/floating/MatMul"),
        ]

    def _rounding(self, stem: str, source: str, of: str, how: InputRange) -> list[NodeProto]:
        """Nodes that round a tensor, which is an input or what rounding left of it."""
        factor, point = np.array(how.scale, dtype=np.float32), np.array(how.zero_point, dtype=np.uint8)
        scale = self._add(f"{stem}.scale", TensorProto.FLOAT, (), lambda: factor)
        zero = self._add(f"{stem}.zero_point", TensorProto.UINT8, (), lambda: point)
        nodes, before = [], source
        if how.reduced:  # QuantizeLinear itself would go on to 255
            low, high = (np.array(v, dtype=np.float32) for v in (how.lowest_value, how.highest_value))
            lowest = self._add(f"{stem}.lowest", TensorProto.FLOAT, (), lambda: low)
            highest = self._add(f"{stem}.highest", TensorProto.FLOAT, (), lambda: high)
            before = f"{stem}.clipped"
            nodes.append(helper.make_node("Clip", [source, lowest, highest], [before], name=f"{stem}/Clip"))
        codes, rounded = f"{stem}.quantized", f"{stem}.dequantized"
        self._rounded[of, how] = rounded
        return [
            *nodes,
            helper.make_node("QuantizeLinear", [before, scale, zero], [codes], name=f"{stem}/QuantizeLinear"),
            helper.make_node(
                "DequantizeLinear", [codes, scale, zero], [rounded], name=f"{stem}/DequantizeLinear"
            ),
        ]


def _codes(plan: Int8Plan) -> Source:
    return lambda: array(plan.load().q.T)


def _zeros(count: int) -> Source:
    return lambda: np.zeros(count, dtype=np.int8)


def _summed(parts: list[str], output: str, stem: str) -> list[NodeProto]:
    """Nodes that add up the parts of a product; none for one part."""
    nodes, so_far = [], parts[0]
    for number, part in enumerate(parts[1:], start=1):
        made = output if number == len(parts) - 1 else f"{stem}.sum_{number}"
        nodes.append(helper.make_node("Add", [so_far, part], [made], name=f"{stem}/Add_{number}"))
        so_far = made
    return nodes
