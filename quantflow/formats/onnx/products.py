"""The products of a graph of somebody else's with constants, and how these are stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from quantflow.formats.onnx.census import INT8_OPERATORS, NBITS, PRODUCTS
from quantflow.formats.onnx.census_record import Computes, Expectation, ExpectedUnit
from quantflow.formats.onnx.graph_file import GraphFile
from quantflow.formats.onnx.graph_interface import SHARED_CACHE
from quantflow.formats.onnx.params import OnnxScheme

INT4 = (onnx.TensorProto.INT4, onnx.TensorProto.UINT4)
INT8 = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
FLOAT_BITS: Mapping[int, int] = {
    onnx.TensorProto.FLOAT: 32,
    onnx.TensorProto.FLOAT16: 16,
    onnx.TensorProto.BFLOAT16: 16,
}
THROUGH = ("DequantizeLinear", "Transpose", "Cast", "Reshape")
"""Operators that a constant may come to its product through."""
SCHEMES: Mapping[Computes, OnnxScheme] = {
    "float": "fp32",
    "int8": "w8a8",
    "weights-int8": "w8-block",
    "weights-int4": "w4-block",
}
MULTIPLIES = ("MatMul", "Gemm", "Conv", "MoE", "Attention", "Einsum", "LSTM", "GRU", "RNN")
"""What names of operators that multiply by weights have in them; `SHARED_CACHE` has none of its own."""
LONGEST_WAY = 4  # operators between a constant and its product


@dataclass(frozen=True)
class Product:
    """A product with a constant.

    Attributes:
        constant: Name of the constant, or the stem of all of its product's constants by the builder's naming.
        computes: What it is stored to be computed in.
        bits: Bits of a weight.
        block: Input channels that share a scale; None where a whole row does, or nothing is quantized.
        elements: Weights.
    """

    constant: str
    computes: Computes
    bits: int
    block: int | None
    elements: int


def graph_products(graph: GraphFile) -> tuple[Product, ...]:
    """Find all products with constants of two dimensions, those of attention's own states aside."""
    makers = {output: node for node in graph.model.graph.node for output in node.output}
    found = (_product(node, graph, makers) for node in graph.model.graph.node if node.op_type in PRODUCTS)
    return tuple(product for product in found if product is not None)


def unknown_products(graph: GraphFile) -> tuple[str, ...]:
    """Nodes that multiply by weights in a way that nothing here reads: how these are stored is not known.

    Weights of another type or with other operators before their product, operators with weights of their
    own, functions and inner graphs.
    """
    matrices = {name for name, tensor in graph.initializers.items() if _is_matrix(tensor)}
    fixed = set(graph.initializers)
    makers = {output: node for node in graph.model.graph.node for output in node.output}
    functions = {
        (one.domain, one.name)
        for one in graph.model.functions
        if any(n.op_type in PRODUCTS for n in one.node)
    }
    unknown: list[str] = []
    for node in graph.model.graph.node:
        given = [name for name in node.input if name]
        held = any(name in matrices for name in given)
        if node.op_type == "Constant" or (given and fixed.issuperset(given)):  # computed once, from constants
            fixed.update(node.output)
            if held or any(_is_matrix(attribute.t) for attribute in node.attribute):
                matrices.update(node.output)
        elif node.op_type in PRODUCTS:
            if held and _product(node, graph, makers) is None:
                unknown.append(node.name or node.output[0])
        elif (
            (node.domain, node.op_type) in functions
            or any(inner.op_type in PRODUCTS for attribute in node.attribute for inner in attribute.g.node)
            or (held and node.op_type != SHARED_CACHE and any(mark in node.op_type for mark in MULTIPLIES))
        ):
            unknown.append(node.name or node.output[0])
    return tuple(unknown)


def _is_matrix(tensor: Any) -> bool:
    return sum(int(size > 1) for size in tensor.dims) >= 2


def expectation_of(products: tuple[Product, ...], unknown: tuple[str, ...] = ()) -> Expectation:
    """What a graph's products are stored as, each a unit by itself.

    Args:
        products: Of the graph.
        unknown: Its products of which that is not known.
    """
    weights: dict[Computes, int] = {}
    by_constant: dict[str, list[Product]] = {}
    for product in products:
        by_constant.setdefault(product.constant, []).append(product)
        weights[product.computes] = weights.get(product.computes, 0) + product.elements
    units = {name: _expected(name, group) for name, group in by_constant.items()}
    scheme = SCHEMES[max(weights, key=lambda kind: weights[kind])]
    return Expectation(scheme=scheme, units=units, unknown=unknown)


def _expected(name: str, products: list[Product]) -> ExpectedUnit:
    """What products of one stem are: beside a larger quantized one, floating ones are channels apart."""
    floating = sum(product.elements for product in products if product.computes == "float")
    largest = max(products, key=lambda product: product.elements)
    return ExpectedUnit(
        computes=largest.computes,
        products=(name,),
        floating_channels=0,
        elements=largest.elements,
        floating_elements=min(floating, largest.elements),
    )


def _product(node: Any, graph: GraphFile, makers: Mapping[str, Any]) -> Product | None:
    if node.op_type == NBITS:
        settings = {attribute.name: attribute.i for attribute in node.attribute}
        bits, elements = settings.get("bits", 4), settings["K"] * settings["N"]
        computes: Computes = "weights-int4" if bits == 4 else "weights-int8"
        return Product(_stem(node.input[1]), computes, bits, settings["block_size"], elements)
    for place, given in enumerate(node.input):
        name, passed = _constant(given, graph, makers)
        if name is None or len(graph.initializers[name].dims) != 2:
            continue
        tensor = graph.initializers[name]
        elements = int(np.prod(tensor.dims, dtype=np.int64))
        if tensor.data_type in FLOAT_BITS:
            return Product(_stem(name), "float", FLOAT_BITS[tensor.data_type], None, elements)
        if tensor.data_type not in (*INT4, *INT8):
            continue
        bits = 4 if tensor.data_type in INT4 else 8
        rounded = node.op_type in INT8_OPERATORS or _is_rounded(node.input[1 - place], makers)
        computes = "int8" if rounded else "weights-int4" if bits == 4 else "weights-int8"
        return Product(_stem(name), computes, bits, _block(passed), elements)
    return None


def _constant(name: str, graph: GraphFile, makers: Mapping[str, Any]) -> tuple[str | None, list[Any]]:
    """The constant behind a product's input, and the operators between."""
    passed: list[Any] = []
    while name not in graph.initializers:
        maker = makers.get(name)
        if maker is None or maker.op_type not in THROUGH or len(passed) == LONGEST_WAY:
            return None, passed
        passed.append(maker)
        name = maker.input[0]
    return name, passed


def _block(passed: list[Any]) -> int | None:
    sizes = (a.i for node in passed for a in node.attribute if a.name == "block_size" and a.i > 0)
    return next(sizes, None)


def _is_rounded(name: str, makers: Mapping[str, Any]) -> bool:
    """Whether the other side of a product comes in 8 bits."""
    maker = makers.get(name)
    return maker is not None and maker.op_type == "DequantizeLinear"


def _stem(name: str) -> str:
    """What the builder's names of all constants of one product begin with; any other name is its own."""
    stem, mark, _ = name.partition(".MatMul")
    return f"{stem}{mark}"
