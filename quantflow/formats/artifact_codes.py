"""The codes of a scheme as one artifact uses them: units that it keeps have none, and need no folds."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from quantflow.errors import QuantizationError
from quantflow.formats.layouts import WEIGHT
from quantflow.model.families import Family
from quantflow.quantize.codes import BlockCodes, LinearCodes, block_file, load_block, quantized_linears
from quantflow.quantize.params import Scheme


@dataclass(frozen=True)
class ArtifactCodes:
    """The codes of an artifact, block by block.

    Attributes:
        folder: Finished output of the stage that wrote them.
        scheme: How weights are quantized.
        family: The model's family.
        kept: Units that stay as they are.
    """

    folder: Path
    scheme: Scheme
    family: Family
    kept: frozenset[str]

    def quantized(self, block: int) -> frozenset[str]:
        """Full names of the linears of a block that the artifact has codes for."""
        return quantized_linears(block_file(self.folder, self.scheme.id, block)) - self._kept_linears(block)

    def load(self, block: int) -> BlockCodes:
        """A block's codes, without those of kept units, and without the folds that these alone needed.

        A scale that was divided out of the rows of a quantized linear, for the sake of a kept unit, is
        multiplied into the scales of its groups, which are per row: its codes stay true.
        """
        codes = load_block(block_file(self.folder, self.scheme.id, block))
        prefix, kept = self.family.block_name(block), self._kept_linears(block)
        undone = {
            f"{prefix}.{fold.into}" for fold in self.family.folds if f"{prefix}.{fold.unit}" in self.kept
        }
        linears = {name: linear for name, linear in codes.linears.items() if name not in kept}
        for name in undone & linears.keys() & {fold.removesuffix(WEIGHT) for fold in codes.folds}:
            linears[name] = _unfolded(name, linears[name], codes.folds[name + WEIGHT])
        folds = {
            name: scale for name, scale in codes.folds.items() if name.removesuffix(WEIGHT) not in undone
        }
        return BlockCodes(linears, folds)

    def _kept_linears(self, block: int) -> frozenset[str]:
        prefix = self.family.block_name(block)
        return frozenset(
            f"{prefix}.{linear}"
            for unit, linears in self.family.units.items()
            if f"{prefix}.{unit}" in self.kept
            for linear in linears
        )


def _unfolded(name: str, codes: LinearCodes, scale: Tensor) -> LinearCodes:
    scales = (codes.scales.float() * scale.unsqueeze(1)).half()
    if not bool(torch.isfinite(scales).all()):
        raise QuantizationError("the scale of a group does not fit float16 without its fold", where=name)
    return replace(codes, scales=scales)
