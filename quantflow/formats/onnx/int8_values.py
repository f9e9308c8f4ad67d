"""INT8 values that a stage before chose, as the linears of a graph take them."""

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from quantflow.formats.onnx.folded import Folded
from quantflow.model.families import Family
from quantflow.model.units import HEAD, units_of
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize.folded_reader import FoldedReader
from quantflow.quantize.int8 import Int8Linear, weights_only
from quantflow.quantize.int8_block import (
    Int8Block,
    int8_file,
    int8_linears,
    load_int8_folds,
    load_int8_linear,
)
from quantflow.quantize.params import Scheme

WEIGHT = ".weight"


class Int8Values:
    """The values of a model in one scheme; called with a linear's full name it reads those of that linear.

    Args:
        folder: Finished output of the stage that wrote them.
        scheme: Theirs.
        family: The model's.
        blocks: How many blocks the model has.
        kept: Units that stay as they are although there may be values of them: what was folded for their
            sake alone is undone, and their neighbours' values stay true.
        floating_inputs: Units whose inputs stay in floating point although there are ranges of them.
    """

    def __init__(
        self,
        folder: Path,
        scheme: Scheme,
        family: Family,
        blocks: int,
        kept: frozenset[str] = frozenset(),
        floating_inputs: Collection[str] = (),
    ) -> None:
        self._family = family
        linears = {**units_of(family, blocks), HEAD: (HEAD,)}
        self._weights_only = {name for unit in floating_inputs for name in linears[unit]}
        self._files = [int8_file(folder, scheme.id, index) for index in (*range(blocks), None)]
        self._head = self._files[-1] if HEAD in kept else None
        self._undone = {
            f"{family.block_name(index)}.{fold.into}{WEIGHT}"
            for index in range(blocks)
            for fold in family.folds
            if f"{family.block_name(index)}.{fold.unit}" in kept
        }

    @property
    def linears(self) -> frozenset[str]:
        """Full names of the linears that have values."""
        return frozenset(self._file_of)

    def __call__(self, linear: str) -> Int8Linear:
        """The values of a linear by its full name; its rows without what was folded in for a kept unit.

        Raises:
            StoreError: They are not there or cannot be read.
        """
        own, name = load_int8_linear(self._file_of[linear], linear), linear + WEIGHT
        if linear in self._weights_only:
            own = weights_only(own)
        scale = load_int8_folds(self._file_of[linear]).get(name) if name in self._undone else None
        if scale is None:
            return own
        return replace(
            own, scales=own.scales * scale, floating_weight=own.floating_weight * scale.unsqueeze(1)
        )

    def folded(self, source: Path) -> Folded:
        """What the values assume of the source's other tensors.

        Args:
            source: Folder of the lossless model.

        Raises:
            QuantizationError: A scale is folded into what the source does not have.
        """
        reader = FoldedReader(source)
        reader.offset = self._family.norm_offset
        for file in self._files:
            folds = load_int8_folds(file) if file != self._head else {}
            kept = {name: scale for name, scale in folds.items() if name not in self._undone}
            reader.fold(Int8Block({}, kept))
        return Folded(
            reader.folded,
            lambda name: reader.read(name).float(),
            SafetensorsReader(source),
            self._family.norm_offset,
        )

    @cached_property
    def _file_of(self) -> dict[str, Path]:
        return {linear: file for file in self._files for linear in int8_linears(file)}
