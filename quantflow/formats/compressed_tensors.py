"""Reads artifacts of llm-compressor: the `pack-quantized` layout of compressed-tensors, weights only.

A linear of `in` inputs and `out` outputs with groups of g inputs and codes of b bits is stored as
`weight_packed` int32 `[out, in·b/32]`, the code of input i in bits (i mod 32/b)·b, each raised by 2^(b−1);
`weight_scale` `[out, in/g]`; `weight_shape` `[2]`; and, where it is asymmetric, `weight_zero_point`,
packed likewise along the outputs, int32 `[out·b/32, in/g]`. It stands for
W[o, i] = (q[o, i] − zero[o, i // g]) · scale[o, i // g].
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quantflow.errors import ArtifactError
from quantflow.formats.layouts import WEIGHT
from quantflow.model.weights import SafetensorsReader

FORMAT, WORD = "pack-quantized", 32
PACKED, SCALE, ZERO, SHAPE, INDEX = (
    ".weight_packed",
    ".weight_scale",
    ".weight_zero_point",
    ".weight_shape",
    ".weight_g_idx",
)


class CompressedReader:
    """The weights of an artifact in compressed-tensors' `pack-quantized` layout; a `WeightReader`.

    Args:
        folder: The artifact.
        settings: `quantization_config` of its config.json.

    Raises:
        ArtifactError: It is in another layout, quantizes activations too, or lacks a part of a linear.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Check settings and headers."""
        self.folder = folder
        self.bits = bits_of(folder, settings)
        self._reader = SafetensorsReader(folder, ArtifactError)
        stored = self._reader.names()
        self.quantized = frozenset(n.removesuffix(PACKED) for n in stored if n.endswith(PACKED))
        if not self.quantized:
            raise ArtifactError("holds no quantized layer, against its config.json", where=str(folder))
        parts = {linear + part for linear in self.quantized for part in (PACKED, SCALE, ZERO, SHAPE, INDEX)}
        self._names = (stored - parts) | {linear + WEIGHT for linear in self.quantized}
        for linear in sorted(self.quantized):
            if linear + INDEX in stored:
                raise ArtifactError(
                    "has groups that are not consecutive inputs, which is not read in this layout",
                    where=f"{folder}: {linear}{INDEX}",
                )
            self._sizes(linear)

    def names(self) -> frozenset[str]:
        """Names of all tensors, quantized weights under the name of what they stand for."""
        return self._names

    def read(self, name: str) -> Tensor:
        """One tensor: a quantized weight dequantized to float32 `[out, in]`, all else as stored.

        Raises:
            ArtifactError: If there is no such tensor, it cannot be read or holds a scale that is not finite.
        """
        linear = name.removesuffix(WEIGHT)
        if not name.endswith(WEIGHT) or linear not in self.quantized:
            return self._reader.read(name)
        rows, columns, groups = self._sizes(linear)
        scale = self._reader.read(linear + SCALE).float()
        if not bool(torch.isfinite(scale).all()):
            raise ArtifactError("holds NaN or infinite scales", where=f"{self.folder}: {linear}{SCALE}")
        codes = unpack(self._reader.read(linear + PACKED), self.bits, columns).float()
        weight = codes.reshape(rows, groups, columns // groups)
        if linear + ZERO in self._reader.names():
            zero = unpack(self._reader.read(linear + ZERO).T.contiguous(), self.bits, rows).T.float()
            weight = weight - zero.unsqueeze(-1)
        return (weight * scale.unsqueeze(-1)).reshape(rows, columns)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that is stored as it is."""
        return self._reader.shape(name)

    def rows(self, name: str, rows: Sequence[int]) -> Tensor:
        """Some rows of a tensor that is stored as it is."""
        return self._reader.rows(name, rows)

    def _sizes(self, linear: str) -> tuple[int, int, int]:
        """Outputs, inputs and groups of a linear, its parts held against one another."""
        rows, columns = (int(size) for size in self._reader.read(linear + SHAPE))
        scale, packed = self._reader.shape(linear + SCALE), self._reader.shape(linear + PACKED)
        words = math.ceil(columns * self.bits / WORD)
        if packed != (rows, words) or len(scale) != 2 or scale[0] != rows or columns % scale[1]:
            raise ArtifactError(
                f"has codes {list(packed)} and scales {list(scale)}, which do not fit {rows} outputs and "
                f"{columns} inputs of {self.bits} bits",
                where=f"{self.folder}: {linear}",
            )
        zero = linear + ZERO
        expected = (math.ceil(rows * self.bits / WORD), scale[1])
        if zero in self._reader.names() and self._reader.shape(zero) != expected:
            raise ArtifactError(
                f"is {list(self._reader.shape(zero))} where {list(expected)} is expected",
                where=f"{self.folder}: {zero}",
            )
        return rows, columns, scale[1]


def bits_of(folder: Path, settings: Mapping[str, Any]) -> int:
    """Bits of a code, of an artifact whose weights alone are quantized.

    Raises:
        ArtifactError: The settings say something else.
    """
    where = str(folder / "config.json")
    if settings.get("format") != FORMAT:
        raise ArtifactError(
            f"compressed-tensors in the format {settings.get('format')!r} are not read; {FORMAT!r} are",
            where=where,
            hint="Its activations are quantized too, most likely: measure it in the runtime that serves it.",
        )
    groups = settings.get("config_groups")
    found = list(groups.values()) if isinstance(groups, dict) else []
    weights = [group.get("weights") or {} for group in found if isinstance(group, dict)]
    if any(isinstance(group, dict) and group.get("input_activations") for group in found):
        raise ArtifactError(
            "quantizes activations too, which the torch runtime does not compute",
            where=where,
            hint="Measure it in the runtime that serves it.",
        )
    bits: set[Any] = {weight.get("num_bits") for weight in weights}
    if len(bits) != 1 or not bits <= {4, 8} or any(weight.get("type", "int") != "int" for weight in weights):
        raise ArtifactError("config_groups do not say one width of 4 or 8 bits of whole numbers", where=where)
    return int(bits.pop())


def unpack(packed: Tensor, bits: int, columns: int) -> Tensor:
    """Signed codes from int32 words: `[rows, words]` → int32 `[rows, columns]`."""
    per_word = WORD // bits
    shifts = torch.arange(per_word, dtype=torch.int32) * bits
    codes = (packed.unsqueeze(-1) >> shifts) & ((1 << bits) - 1)
    return codes.reshape(len(packed), -1)[:, :columns] - (1 << (bits - 1))
