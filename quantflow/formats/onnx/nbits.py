"""Products by block: ONNX Runtime's MatMulNBits and its codes.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits.
"""

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper

from quantflow.formats.onnx.constants import Constants
from quantflow.formats.onnx.linears import GraphLinear
from quantflow.formats.onnx.plans import NBitsPlan
from quantflow.quantize.codes import LinearCodes

CONTRIB = "com.microsoft"
NIBBLE = 4


def nbits_node(
    node: NodeProto, linear: GraphLinear, plan: NBitsPlan, constants: Constants, accuracy_level: int
) -> NodeProto:
    """A product as one MatMulNBits.

    Args:
        node: The float product.
        linear: What is known of it.
        plan: What it becomes.
        constants: Get its codes and scales.
        accuracy_level: What it is to compute in.
    """
    graph, add, stem, load = constants.graph, constants.add, linear.stem, plan.load
    blocks = linear.inputs // plan.block_size
    blob = plan.block_size * plan.bits // 8
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


def packed_codes(codes: LinearCodes) -> NDArray[np.uint8]:
    """Codes as MatMulNBits takes them: uint8 `[out, blocks, block_size · bits / 8]`, low bits first."""
    rows, columns = codes.q.shape
    q = codes.q.numpy().reshape(rows, columns // codes.group_size, codes.group_size)
    return _pairs(q) if codes.bits == NIBBLE else np.ascontiguousarray(q)


def packed_zero_points(codes: LinearCodes) -> NDArray[np.uint8]:
    """Zero points as MatMulNBits takes them: uint8 `[out, blocks · bits / 8]`, rounded up to whole bytes."""
    points = codes.zero_points.numpy()
    if codes.bits != NIBBLE:
        return np.ascontiguousarray(points)
    return _pairs(np.pad(points, ((0, 0), (0, points.shape[1] % 2))))


def _pairs(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values[..., 0::2] | values[..., 1::2] << NIBBLE)
