"""The layouts that quantized linears are stored in, side by side: what a format is to those that use it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from quantflow.formats import awq, gptq
from quantflow.model.safetensors_file import TensorSpec
from quantflow.quantize.codes import LinearCodes
from quantflow.quantize.params import Scheme

WEIGHT = ".weight"
"""What a linear's parts stand for, under the name the lossless model has for it."""


@dataclass(frozen=True)
class Layout:
    """How a linear's codes lie on disk.

    Attributes:
        parts: Suffixes of the tensors that a linear is stored as.
        obstacle: Outputs, inputs and bits of a linear → why it cannot be stored, a clause, or nothing.
        specs: Name, outputs, inputs, bits and group size of a linear → its tensors' names, types and shapes.
        tensors: Name and codes of a linear → its tensors by name.
        codes: Its tensors by suffix, bits and group size → its codes.
        config: Scheme, the kept units with their linears, and linears outside the blocks →
            `quantization_config` of config.json.
    """

    parts: tuple[str, ...]
    obstacle: Callable[[int, int, int], str]
    specs: Callable[[str, int, int, int, int], tuple[TensorSpec, ...]]
    tensors: Callable[[str, LinearCodes], Mapping[str, Tensor]]
    codes: Callable[[Mapping[str, Tensor], int, int], LinearCodes]
    config: Callable[[Scheme, Mapping[str, tuple[str, ...]], tuple[str, ...]], dict[str, Any]]


LAYOUTS: Mapping[str, Layout] = {
    "awq": Layout(
        awq.PARTS,
        awq.obstacle,
        awq.linear_specs,
        awq.linear_tensors,
        awq.linear_codes,
        awq.quantization_config,
    ),
    "gptq": Layout(
        gptq.PARTS,
        gptq.obstacle,
        gptq.linear_specs,
        gptq.linear_tensors,
        gptq.linear_codes,
        gptq.quantization_config,
    ),
}
