"""Codes as ONNX Runtime's MatMulNBits takes them.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits.
"""

import numpy as np
from numpy.typing import NDArray

from quantflow.quantize.codes import LinearCodes

NIBBLE = 4


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
