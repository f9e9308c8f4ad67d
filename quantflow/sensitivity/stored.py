"""The codes of a model in one precision, as a stage wrote them, opened block by block for swapping."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from quantflow.model.families import Family
from quantflow.model.units import HEAD
from quantflow.quantize.codes import block_file, load_block, quantized_linears
from quantflow.quantize.int8 import weights_only
from quantflow.quantize.int8_block import Int8Block, int8_linears, read_int8_block
from quantflow.quantize.params import Scheme, int8_scheme
from quantflow.sensitivity.int8_swap import Int8Swaps
from quantflow.sensitivity.params import ScanParams
from quantflow.sensitivity.swap import BlockSwaps, WeightSwaps, whole_units


@dataclass(frozen=True)
class StoredCodes:
    """The codes of a model in one precision, as they would ship.

    Attributes:
        folder: Output of the stage that wrote them.
        scheme: The scheme that they were written in.
        family: The model's family.
        weights_only: Of INT8 values, whether inputs stay in floating point although there are ranges of them.
    """

    folder: Path
    scheme: Scheme
    family: Family
    weights_only: bool = False

    @property
    def precision(self) -> str:
        """Id of the scheme that they stand for."""
        return int8_scheme("int8").id if self.weights_only else self.scheme.id

    def units(self, block: int) -> tuple[str, ...]:
        """Units of a block that have codes, e.g. `qkv`, without reading these."""
        path = block_file(self.folder, self.scheme.id, block)
        linears = int8_linears(path) if self.scheme.is_int8 else quantized_linears(path)
        return whole_units(self.family, self.family.block_name(block), linears)

    def open(self, block: int) -> BlockSwaps:
        """The codes of a block."""
        prefix = self.family.block_name(block)
        if self.scheme.is_int8:
            return Int8Swaps(self._int8(block), self.family, prefix)
        return WeightSwaps(load_block(block_file(self.folder, self.scheme.id, block)), self.family, prefix)

    def open_head(self) -> BlockSwaps | None:
        """The codes of the head, whose only unit and linear it is; None where it is not quantized.

        Formats of codes other than INT8 leave it as it is.
        """
        values = self._int8(None) if self.scheme.is_int8 else Int8Block()
        return Int8Swaps(values, self.family, "") if HEAD in values.linears else None

    def _int8(self, block: int | None) -> Int8Block:
        values = read_int8_block(self.folder, self.scheme.id, block)
        if not self.weights_only:
            return values
        return replace(values, linears={name: weights_only(own) for name, own in values.linears.items()})


def stored_codes(params: ScanParams, folder: Path, family: Family) -> dict[str, StoredCodes]:
    """Precision → its codes, of all that a scan scores.

    Args:
        params: Of the scan.
        folder: Output of the stage that wrote them.
        family: The model's family.
    """
    stored = [StoredCodes(folder, scheme, family) for scheme in params.precisions]
    if params.weights_only:
        stored += [replace(own, weights_only=True) for own in stored if own.scheme.method == "w8a8"]
    return {own.precision: own for own in stored}


def open_block(codes: Mapping[str, StoredCodes], block: int) -> dict[str, BlockSwaps]:
    """Precision → the codes of a block."""
    return {precision: own.open(block) for precision, own in codes.items()}
