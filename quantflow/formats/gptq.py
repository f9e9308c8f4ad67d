"""AutoGPTQ's layout, version 1: codes of 2, 3, 4 or 8 bits as a stream of bits down each output's column.

A linear layer of `in` inputs and `out` outputs in groups is stored as `qweight` int32 `[in·bits/32, out]`,
`qzeros` int32 `[groups, out·bits/32]`, `scales` float16 `[groups, out]` and `g_idx` int32 `[in]`, and stands
for W[o, i] = (q[i, o] - zero[g_idx[i], o]) * scale[g_idx[i], o]. Value n of a stream has bits n·bits and
following of its words, lowest first; with 3 bits values 10 and 21 of each 32 straddle two words. `qzeros`
holds zero points minus one. vLLM, SGLang, GPTQModel and the ONNX Runtime GenAI builder read it.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from quantflow.model.safetensors_file import TensorSpec
from quantflow.model.units import HEAD
from quantflow.quantize.codes import LinearCodes
from quantflow.quantize.params import Scheme

WORD = 32
QWEIGHT, QZEROS, SCALES, GROUP_INDEX = ".qweight", ".qzeros", ".scales", ".g_idx"
PARTS = (QWEIGHT, QZEROS, SCALES, GROUP_INDEX)
VERSION = "gptq"
"""`checkpoint_format` of version 1; version 2 has `gptq_v2` and zero points as they are."""

RUNTIME_FUSED = {"qkv": "qkv_proj", "gate_up": "gate_up_proj"}
"""What vLLM and SGLang call the layer that they fuse a unit's linears into; they match exclusions with it."""


def period(bits: int) -> int:
    """Values after which a stream is at the start of a word again."""
    return WORD // math.gcd(WORD, bits)


def pack(values: Tensor, bits: int) -> Tensor:
    """Pack codes along the first dimension, uint8 `[rows, columns]` → int32 `[rows · bits / 32, columns]`.

    Raises:
        ValueError: If the rows do not fill whole words or a value needs more bits.
    """
    rows, columns = values.shape
    size = period(bits)
    if rows % size:
        raise ValueError(f"{rows} rows of {bits} bits are not a multiple of {size}")
    if values.numel() and int(values.max()) >= 1 << bits:
        raise ValueError(f"a value of {int(values.max())} does not fit {bits} bits")
    streams = values.reshape(-1, size, columns)
    words = torch.zeros(len(streams), size * bits // WORD, columns, dtype=torch.int32, device=values.device)
    for place in range(size):
        word, shift = divmod(place * bits, WORD)
        value = streams[:, place].to(torch.int32)
        words[:, word] |= value << shift
        if shift + bits > WORD:
            words[:, word + 1] |= value >> (WORD - shift)
    return words.reshape(-1, columns)


def unpack(packed: Tensor, bits: int) -> Tensor:
    """Undo `pack`: int32 `[words, columns]` → uint8 `[words · 32 / bits, columns]`."""
    size = period(bits)
    words = packed.reshape(-1, size * bits // WORD, packed.shape[1])
    values = torch.empty(len(words), size, packed.shape[1], dtype=torch.uint8, device=packed.device)
    for place in range(size):
        word, shift = divmod(place * bits, WORD)
        value = words[:, word] >> shift  # copies of the sign come in from above, beyond the bits that count
        if shift + bits > WORD:
            above = (1 << (WORD - shift)) - 1
            value = (value & above) | (words[:, word + 1] << (WORD - shift))
        values[:, place] = value & ((1 << bits) - 1)
    return values.reshape(-1, packed.shape[1])


def obstacle(outputs: int, inputs: int, bits: int) -> str:
    """Why the layout cannot hold a linear of these sizes, a clause; empty where it can."""
    size = period(bits)
    if outputs % size or inputs % size:
        return f"GPTQ packs {bits} bits in multiples of {size} outputs and {size} inputs"
    return ""


def linear_specs(
    linear: str, outputs: int, inputs: int, bits: int, group_size: int
) -> tuple[TensorSpec, ...]:
    """The tensors that a quantized linear is stored as."""
    groups = inputs // group_size
    return (
        TensorSpec(linear + QWEIGHT, torch.int32, (inputs * bits // WORD, outputs)),
        TensorSpec(linear + QZEROS, torch.int32, (groups, outputs * bits // WORD)),
        TensorSpec(linear + SCALES, torch.float16, (groups, outputs)),
        TensorSpec(linear + GROUP_INDEX, torch.int32, (inputs,)),
    )


def linear_tensors(linear: str, codes: LinearCodes) -> Mapping[str, Tensor]:
    """A linear's codes as the tensors of `linear_specs`, by name.

    Raises:
        ValueError: If a zero point is 0: stored minus one it would wrap around, and readers differ in what
            they make of that.
    """
    if codes.zero_points.numel() and int(codes.zero_points.min()) < 1:
        raise ValueError("a zero point is 0, which version 1 of the GPTQ layout cannot store")
    index = codes.group_index
    return {
        linear + QWEIGHT: pack(codes.q.T, codes.bits),
        linear + QZEROS: pack(codes.zero_points - 1, codes.bits).T.contiguous(),
        linear + SCALES: codes.scales.T.contiguous(),
        linear + GROUP_INDEX: consecutive(codes.q.shape[1], codes.group_size) if index is None else index,
    }


def consecutive(inputs: int, group_size: int) -> Tensor:
    """The group of every input where groups are consecutive inputs: int32 `[inputs]`."""
    return torch.arange(inputs, dtype=torch.int32) // group_size


def linear_codes(parts: Mapping[str, Tensor], bits: int, group_size: int) -> LinearCodes:
    """Undo `linear_tensors`.

    Args:
        parts: Suffix → tensor.
        bits: Width of a code.
        group_size: Input channels that share a scale.
    """
    index = parts[GROUP_INDEX]
    plain = torch.equal(index, consecutive(len(index), group_size))
    return LinearCodes(
        q=unpack(parts[QWEIGHT], bits).T.contiguous(),
        scales=parts[SCALES].T.contiguous(),
        zero_points=unpack(parts[QZEROS].T.contiguous(), bits) + 1,
        bits=bits,
        group_size=group_size,
        group_index=None if plain else index,
    )


def mixes_groups(scheme: Scheme) -> bool:
    """Whether groups may be other than consecutive inputs, which runtimes have to be told."""
    return scheme.desc_act and not scheme.static_groups and scheme.group_size != -1


def quantization_config(
    scheme: Scheme, kept: Mapping[str, tuple[str, ...]], outside: tuple[str, ...]
) -> dict[str, Any]:
    """The `quantization_config` of config.json.

    Args:
        scheme: How weights are quantized.
        kept: Unit of a block, e.g. `model.layers.0.qkv`, that is not quantized → its linears' full names.
        outside: Linears outside the blocks, which are never quantized.
    """
    config: dict[str, Any] = {
        "quant_method": "gptq",
        "checkpoint_format": VERSION,
        "bits": scheme.bits,
        "group_size": scheme.group_size,
        "desc_act": mixes_groups(scheme),
        "sym": scheme.symmetric,
        "lm_head": False,
        "pack_dtype": "int32",
    }
    patterns = [_pattern(unit, linears) for unit, linears in sorted(kept.items())]
    patterns += [f"^{re.escape(name)}$" for name in outside if name != HEAD]
    if patterns:
        config["dynamic"] = {f"-:{pattern}": {} for pattern in patterns}
    return config


def _pattern(unit: str, linears: tuple[str, ...]) -> str:
    """A regular expression for a unit's linears and for the layer that runtimes fuse them into."""
    module = linears[0].rpartition(".")[0]
    names = [linear.rpartition(".")[2] for linear in linears]
    fused = RUNTIME_FUSED.get(unit.rpartition(".")[2])
    if len(names) > 1 and fused is not None:
        names.append(fused)
    return f"^{re.escape(module)}\\.({'|'.join(map(re.escape, names))})$"
