"""INT8 values that a stage before chose: of a graph's linears, and the folds they assume."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from quantflow.errors import QuantizationError
from quantflow.formats.onnx.folded import Folded
from quantflow.model.families import Family
from quantflow.model.units import HEAD
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize.int8 import Int8Linear
from quantflow.quantize.int8_block import Int8Block, int8_file, int8_linears, load_int8_block

WEIGHT = ".weight"


class ChosenCodes:
    """The INT8 values in the output of a stage, a block in memory at a time.

    Args:
        stage_output: The finished output.
        scheme_id: Their scheme.
        family: The model's family.
        blocks: How many blocks it has.
        kept: Units that stay as they are although there may be values of them: what was folded for their
            sake alone is undone, and their neighbours' values stay true.

    Raises:
        StoreError: Values are missing.
    """

    def __init__(
        self,
        stage_output: Path,
        scheme_id: str,
        family: Family,
        blocks: int,
        kept: frozenset[str] = frozenset(),
    ) -> None:
        self._files = {index: int8_file(stage_output, scheme_id, index) for index in (*range(blocks), None)}
        self._family = family
        self._index: dict[str, int | None] = {}
        for index, file in self._files.items():
            self._index |= dict.fromkeys(int8_linears(file), index)
        self._held: tuple[int | None, Int8Block] | None = None
        self._undone = {
            f"{family.block_name(index)}.{fold.into}{WEIGHT}"
            for index in range(blocks)
            for fold in family.folds
            if f"{family.block_name(index)}.{fold.unit}" in kept
        }
        self._head_kept = HEAD in kept

    @property
    def quantized(self) -> frozenset[str]:
        """Full names of the linears that have values."""
        return frozenset(self._index)

    def of(self, linear: str) -> Int8Linear:
        """The values of a linear; its rows are not divided by what was folded into it for a kept unit."""
        block = self._block(self._index[linear])
        own, name = block.linears[linear], linear + WEIGHT
        if name not in self._undone or name not in block.folds:
            return own
        scale = block.folds[name]
        return replace(
            own, scales=own.scales * scale, floating_weight=own.floating_weight * scale.unsqueeze(1)
        )

    def folded(self, source: SafetensorsReader) -> Folded:
        """What of the source is divided by scales.

        Raises:
            QuantizationError: A scale is folded into what the source does not have.
        """
        scales = {
            name: scale
            for index in self._files
            if not (index is None and self._head_kept)
            for name, scale in self._block(index).folds.items()
            if name not in self._undone
        }
        names = {name for weight in scales for name in _beside(weight, source)}

        def read(name: str) -> Tensor:
            tensor, scale = source.read(name).float(), scales[name.rpartition(".")[0] + WEIGHT]
            is_norm = name in scales and tensor.dim() == 1
            offset = self._family.norm_offset if is_norm else 0.0
            return (tensor + offset) / (scale if tensor.dim() == 1 else scale.unsqueeze(1)) - offset

        return Folded(frozenset(names), read, source, self._family.norm_offset)

    def _block(self, index: int | None) -> Int8Block:
        if self._held is None or self._held[0] != index:
            self._held = None  # goes before the next one comes
            self._held = (index, load_int8_block(self._files[index]))
        return self._held[1]


def _beside(weight: str, source: SafetensorsReader) -> Iterator[str]:
    """A weight that a scale is folded into and the bias beside it."""
    if weight not in source.names():
        raise QuantizationError("a scale is folded into it, and the source has no such tensor", where=weight)
    yield weight
    bias = weight.removesuffix(WEIGHT) + ".bias"
    if bias in source.names():
        yield bias
