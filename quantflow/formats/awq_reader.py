"""Reads an AWQ artifact back: every weight by the name the lossless model has for it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quantflow.errors import ArtifactError
from quantflow.formats.awq import BITS, PACKED, QWEIGHT, QZEROS, SCALES, WEIGHT, linear_codes
from quantflow.model.safetensors_file import TensorSpec
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize.codes import LinearCodes, dequantize

DAMAGED = "The artifact is damaged, or another tool wrote it in another layout."


class AwqReader:
    """The weights of an artifact in AutoAWQ's `gemm` layout; a `WeightReader`.

    Args:
        folder: The artifact.
        settings: `quantization_config` of its config.json.

    Raises:
        ArtifactError: If the settings are not those of the layout, or a tensor is missing, has a shape or
            dtype that does not fit the others, or cannot be read.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        """Check the settings and, from the headers alone, every quantized linear."""
        self.folder = folder
        self.group_size = _group_size(folder, settings)
        self._reader = SafetensorsReader(folder, ArtifactError)
        stored = self._reader.names()
        quantized = {
            name.removesuffix(suffix)
            for name in stored
            for suffix in (QWEIGHT, QZEROS, SCALES)
            if name.endswith(suffix)
        }
        kept = settings.get("modules_to_not_convert") or []
        for linear in sorted(quantized):
            self._check(linear, kept)
        parts = {linear + suffix for linear in quantized for suffix in (QWEIGHT, QZEROS, SCALES)}
        self._quantized = frozenset(quantized)
        self._names = (stored - parts) | {linear + WEIGHT for linear in quantized}

    @property
    def quantized(self) -> frozenset[str]:
        """Full names of the linears that are stored as codes."""
        return self._quantized

    def names(self) -> frozenset[str]:
        """Names of all tensors, quantized weights under the name of what they stand for."""
        return self._names

    def read(self, name: str) -> Tensor:
        """One tensor: a quantized weight dequantized to float32 `[out, in]`, all else as stored.

        Raises:
            ArtifactError: If there is no such tensor, it cannot be read, or a scale is not finite.
        """
        linear = name.removesuffix(WEIGHT)
        if name.endswith(WEIGHT) and linear in self._quantized:
            return dequantize(self.codes(linear))
        return self._reader.read(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that is not quantized."""
        return self._reader.shape(name)

    def rows(self, name: str, rows: Sequence[int]) -> Tensor:
        """Some rows of a tensor that is not quantized."""
        return self._reader.rows(name, rows)

    def codes(self, linear: str) -> LinearCodes:
        """The codes of a quantized linear.

        Raises:
            ArtifactError: If they cannot be read or a scale is not finite.
        """
        qweight, qzeros, scales = (self._reader.read(linear + suffix) for suffix in (QWEIGHT, QZEROS, SCALES))
        if not bool(torch.isfinite(scales).all()):
            raise ArtifactError("holds NaN or infinite scales", where=f"{self.folder}: {linear}{SCALES}")
        return linear_codes(qweight, qzeros, scales, self.group_size)

    def _check(self, linear: str, kept: list[str]) -> None:
        # A runtime skips a module whose name contains one of those it is told not to convert.
        if any(module in linear for module in kept):
            raise ArtifactError(
                "is quantized although modules_to_not_convert names it", where=f"{self.folder}: {linear}"
            )
        if linear + WEIGHT in self._reader.names():
            raise ArtifactError("is stored both quantized and not", where=f"{self.folder}: {linear}")
        qweight = self._reader.spec(linear + QWEIGHT)
        if len(qweight.shape) != 2 or qweight.shape[0] % self.group_size:
            raise ArtifactError(
                f"has shape {list(qweight.shape)}, which groups of {self.group_size} inputs do not divide",
                where=f"{self.folder}: {qweight.name}",
                hint=DAMAGED,
            )
        inputs, words = qweight.shape
        groups = inputs // self.group_size
        for expected in (
            TensorSpec(linear + QWEIGHT, torch.int32, (inputs, words)),
            TensorSpec(linear + QZEROS, torch.int32, (groups, words)),
            TensorSpec(linear + SCALES, torch.float16, (groups, words * PACKED)),
        ):
            found = self._reader.spec(expected.name)
            if found != expected:
                raise ArtifactError(
                    f"is {found.dtype} {list(found.shape)}; with groups of {self.group_size} it has to be "
                    f"{expected.dtype} {list(expected.shape)}",
                    where=f"{self.folder}: {expected.name}",
                    hint=DAMAGED,
                )


def _group_size(folder: Path, settings: dict[str, Any]) -> int:
    expected = {"quant_method": "awq", "version": "gemm", "bits": BITS, "zero_point": True}
    for key, value in expected.items():
        if settings.get(key) != value:
            raise ArtifactError(
                f"quantization_config has {key} {settings.get(key)!r}; QuantFlow reads {value!r}",
                where=str(folder / "config.json"),
            )
    group_size = settings.get("group_size")
    if type(group_size) is not int or group_size <= 0:
        raise ArtifactError(
            f"quantization_config has group_size {group_size!r}; it has to be a positive whole number",
            where=str(folder / "config.json"),
        )
    return group_size
