"""AutoAWQ's `gemm` layout: four-bit asymmetric codes, eight to an int32, inputs along the rows.

A linear layer of `in` inputs and `out` outputs with groups of g inputs is stored as `qweight` int32
`[in, out/8]`, `qzeros` int32 `[in/g, out/8]` and `scales` float16 `[in/g, out]`, and stands for
W[o, i] = (q[i, o] - zero[i // g, o]) * scale[i // g, o]. vLLM, SGLang, transformers and the ONNX Runtime
GenAI builder read it.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from quantflow.model.safetensors_file import TensorSpec
from quantflow.quantize.codes import LinearCodes
from quantflow.quantize.params import Scheme

BITS = 4
PACKED = 32 // BITS
NIBBLE_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Column, of each eight, whose code is in an int32's n-th lowest nibble; it suits the kernels' unpacking."""

QWEIGHT, QZEROS, SCALES = ".qweight", ".qzeros", ".scales"
PARTS = (QWEIGHT, QZEROS, SCALES)


def pack(values: Tensor) -> Tensor:
    """Pack codes below 16, uint8 `[rows, columns]`, into int32 `[rows, columns / 8]`.

    Raises:
        ValueError: If the columns are not a multiple of eight or a value needs more than four bits.
    """
    rows, columns = values.shape
    if columns % PACKED:
        raise ValueError(f"{columns} columns are not a multiple of {PACKED}")
    if values.numel() and int(values.max()) >= 1 << BITS:
        raise ValueError(f"a value of {int(values.max())} does not fit {BITS} bits")
    packed = torch.zeros(rows, columns // PACKED, dtype=torch.int32, device=values.device)
    for nibble, column in enumerate(NIBBLE_ORDER):
        packed |= values[:, column::PACKED].to(torch.int32) << (nibble * BITS)
    return packed


def unpack(packed: Tensor) -> Tensor:
    """Undo `pack`: int32 `[rows, columns / 8]` → uint8 `[rows, columns]`."""
    rows, words = packed.shape
    values = torch.empty(rows, words * PACKED, dtype=torch.uint8, device=packed.device)
    for nibble, column in enumerate(NIBBLE_ORDER):
        values[:, column::PACKED] = (packed >> (nibble * BITS)) & ((1 << BITS) - 1)
    return values


def obstacle(outputs: int, inputs: int, bits: int) -> str:
    """Why the layout cannot hold a linear of these sizes, a clause; empty where it can."""
    return f"AWQ packs multiples of {PACKED} outputs" if outputs % PACKED else ""


def linear_specs(
    linear: str, outputs: int, inputs: int, bits: int, group_size: int
) -> tuple[TensorSpec, ...]:
    """The tensors that a quantized linear is stored as."""
    return (
        TensorSpec(linear + QWEIGHT, torch.int32, (inputs, outputs // PACKED)),
        TensorSpec(linear + QZEROS, torch.int32, (inputs // group_size, outputs // PACKED)),
        TensorSpec(linear + SCALES, torch.float16, (inputs // group_size, outputs)),
    )


def linear_tensors(linear: str, codes: LinearCodes) -> Mapping[str, Tensor]:
    """A linear's codes as the tensors of `linear_specs`, by name.

    Raises:
        ValueError: If groups are not consecutive inputs, which the layout has no place for.
    """
    if codes.group_index is not None:
        raise ValueError("groups are not consecutive inputs, which the AWQ layout cannot store")
    return {
        linear + QWEIGHT: pack(codes.q.T),
        linear + QZEROS: pack(codes.zero_points.T),
        linear + SCALES: codes.scales.T.contiguous(),
    }


def linear_codes(parts: Mapping[str, Tensor], bits: int, group_size: int) -> LinearCodes:
    """Undo `linear_tensors`.

    Args:
        parts: Suffix → tensor.
        bits: Width of a code.
        group_size: Inputs that share a scale.
    """
    return LinearCodes(
        q=unpack(parts[QWEIGHT]).T.contiguous(),
        scales=parts[SCALES].T.contiguous(),
        zero_points=unpack(parts[QZEROS]).T.contiguous(),
        bits=bits,
        group_size=group_size,
    )


def quantization_config(
    scheme: Scheme, kept: Mapping[str, tuple[str, ...]], outside: tuple[str, ...]
) -> dict[str, Any]:
    """The `quantization_config` of config.json.

    Args:
        scheme: How weights are quantized.
        kept: Unit of a block that is not quantized → its linears' full names. Runtimes that fuse them look
            for each by its own name.
        outside: Linears outside the blocks, which are never quantized.
    """
    linears = sorted(linear for names in kept.values() for linear in names)
    return {
        "quant_method": "awq",
        "version": "gemm",
        "bits": BITS,
        "group_size": scheme.group_size,
        "zero_point": True,
        "modules_to_not_convert": [*outside, *linears],
    }
