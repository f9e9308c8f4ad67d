"""Reads an artifact of codes back: every weight by the name the lossless model has for it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from quantflow.errors import ArtifactError
from quantflow.formats.layouts import WEIGHT, Layout
from quantflow.model.safetensors_file import TensorSpec
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize.codes import LinearCodes, dequantize

DAMAGED = "The artifact is damaged, or another tool wrote it in another layout."
SCALES = ".scales"


class CodesReader:
    """The weights of an artifact whose linears are stored as codes; a `WeightReader`.

    Args:
        folder: The artifact.
        layout: How its linears' codes lie on disk.
        bits: Width of a code.
        sizes: The specs of a linear's parts by suffix → its outputs, inputs and group size. Raises
            ArtifactError where they cannot be told.
        excluded: Name of a linear → why a runtime would not take it for quantized, a clause, or nothing.
        verify: Raises ArtifactError if a linear's codes are not what its config.json promises.

    Raises:
        ArtifactError: If a part of a linear is missing, has a shape or dtype that does not fit the others, or
            cannot be read.
    """

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        bits: int,
        sizes: Callable[[Mapping[str, TensorSpec]], tuple[int, int, int]],
        excluded: Callable[[str], str],
        verify: Callable[[str, LinearCodes], None],
    ) -> None:
        """Check, from the headers alone, every quantized linear."""
        self.folder = folder
        self._layout = layout
        self._bits = bits
        self._verify = verify
        self._reader = SafetensorsReader(folder, ArtifactError)
        stored = self._reader.names()
        linears = {name.removesuffix(part) for name in stored for part in layout.parts if name.endswith(part)}
        self._group_sizes = {linear: self._check(linear, sizes, excluded) for linear in sorted(linears)}
        parts = {linear + part for linear in linears for part in layout.parts}
        self._names = (stored - parts) | {linear + WEIGHT for linear in linears}

    @property
    def quantized(self) -> frozenset[str]:
        """Full names of the linears that are stored as codes."""
        return frozenset(self._group_sizes)

    def names(self) -> frozenset[str]:
        """Names of all tensors, quantized weights under the name of what they stand for."""
        return self._names

    def read(self, name: str) -> Tensor:
        """One tensor: a quantized weight dequantized to float32 `[out, in]`, all else as stored.

        Raises:
            ArtifactError: If there is no such tensor, it cannot be read, or it holds what it must not.
        """
        linear = name.removesuffix(WEIGHT)
        if name.endswith(WEIGHT) and linear in self._group_sizes:
            return dequantize(self.codes(linear))
        return self._reader.read(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that is stored as it is."""
        return self._reader.shape(name)

    def rows(self, name: str, rows: Sequence[int]) -> Tensor:
        """Some rows of a tensor that is stored as it is."""
        return self._reader.rows(name, rows)

    def codes(self, linear: str) -> LinearCodes:
        """The codes of a quantized linear.

        Raises:
            ArtifactError: If they cannot be read, a scale is not finite, or they are not as config.json says.
        """
        parts = {part: self._reader.read(linear + part) for part in self._layout.parts}
        if not bool(torch.isfinite(parts[SCALES]).all()):
            raise ArtifactError("holds NaN or infinite scales", where=f"{self.folder}: {linear}{SCALES}")
        codes = self._layout.codes(parts, self._bits, self._group_sizes[linear])
        self._verify(linear, codes)
        return codes

    def _check(
        self,
        linear: str,
        sizes: Callable[[Mapping[str, TensorSpec]], tuple[int, int, int]],
        excluded: Callable[[str], str],
    ) -> int:
        """Check a linear's parts by their headers; its group size."""
        why = excluded(linear)
        if why:
            raise ArtifactError(f"is quantized although {why}", where=f"{self.folder}: {linear}")
        if linear + WEIGHT in self._reader.names():
            raise ArtifactError("is stored both quantized and not", where=f"{self.folder}: {linear}")
        found = {part: self._reader.spec(linear + part) for part in self._layout.parts}
        empty = next((spec for spec in found.values() if 0 in spec.shape), None)
        if empty is not None:
            raise unreadable(self.folder, empty, "and holds nothing")
        outputs, inputs, group_size = sizes(found)
        for expected in self._layout.specs(linear, outputs, inputs, self._bits, group_size):
            spec = found[expected.name.removeprefix(linear)]
            if spec != expected:
                raise ArtifactError(
                    f"is {spec.dtype} {list(spec.shape)}; with {self._bits} bits in groups of {group_size} "
                    f"it has to be {expected.dtype} {list(expected.shape)}",
                    where=f"{self.folder}: {expected.name}",
                    hint=DAMAGED,
                )
        return group_size


def unreadable(folder: Path, spec: TensorSpec, why: str) -> ArtifactError:
    """The error for a part whose shape makes no sense by itself."""
    return ArtifactError(f"has shape {list(spec.shape)}, {why}", where=f"{folder}: {spec.name}", hint=DAMAGED)
