"""A model whose linears are quantized, without an artifact on disk: its weights as codes stand for them."""

from collections.abc import Callable
from pathlib import Path

import torch

from quantflow.model.weights import SafetensorsReader
from quantflow.quantize.codes import LinearCodes, dequantize

WEIGHT = ".weight"


class QuantizedReader(SafetensorsReader):
    """The tensors of a Hugging Face folder, those of some linears quantized and dequantized on the way.

    Args:
        folder: The folder.
        quantized: Full names of the linears.
        codes: Gives the codes of one by its name and its weight as stored.
    """

    def __init__(
        self, folder: Path, quantized: frozenset[str], codes: Callable[[str, torch.Tensor], LinearCodes]
    ) -> None:
        """Read and check headers, as a `SafetensorsReader`."""
        super().__init__(folder)
        self._quantized = quantized
        self._codes = codes

    def read(self, name: str) -> torch.Tensor:
        """One tensor: a quantized weight in float32 `[out, in]`, all else as stored."""
        linear, tensor = name.removesuffix(WEIGHT), super().read(name)
        if name.endswith(WEIGHT) and linear in self._quantized:
            return dequantize(self._codes(linear, tensor))
        return tensor
