"""The model as the remedies see it: problems unit by unit, and INT8 values once options are chosen."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from quantflow.calibrate.input_ranges import load_ranges, ranges_file
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.families import Fold
from quantflow.model.head import final_norm, head_weight
from quantflow.model.units import HEAD, kept_units, units_of
from quantflow.quantize.folds import divisor
from quantflow.quantize.int8 import Int8Linear
from quantflow.quantize.int8_block import Int8Block
from quantflow.quantize.params import RemedyParams
from quantflow.remedies.options import Option, UnitProblem, UnitValues, apply

WEIGHT = ".weight"


@dataclass(frozen=True)
class RemediedModel:
    """A lossless model, what its inputs range over, and what may be done.

    Attributes:
        decoder: The model.
        ranges: Finished output of the quantize stage.
        params: Of the remedy stage.
    """

    decoder: StreamedDecoder
    ranges: Path
    params: RemedyParams

    @cached_property
    def kept(self) -> frozenset[str]:
        """Full names of the units that stay as they are, the head among them where `keep` means it."""
        family, blocks = self.decoder.family, self.decoder.num_blocks
        patterns = self.params.keep
        head = {HEAD} if any(fnmatchcase(HEAD, pattern) for pattern in patterns) else set()
        return kept_units(patterns, family, blocks) | head

    @cached_property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """Full name of every unit that is quantized → outputs of all its linears, and inputs."""
        return {unit: size for unit, size in self._sizes.items() if unit not in self.kept}

    @cached_property
    def weights(self) -> int:
        """Elements of all linear layers, the head's counted in and the embedding's not."""
        return sum(rows * columns for rows, columns in self._sizes.values())

    @property
    def kept_weights(self) -> int:
        """Those of them that are kept."""
        return sum(rows * columns for unit, (rows, columns) in self._sizes.items() if unit in self.kept)

    def floating_share(self, options: Mapping[str, Option]) -> float:
        """Elements of linear layers in floating point over all of them."""
        apart = sum(option.channels * self.sizes[unit][0] for unit, option in options.items())
        return (apart + self.kept_weights) / self.weights

    def twice_share(self, options: Mapping[str, Option]) -> float:
        """Elements of linear layers that are multiplied twice over all of them."""
        twice = (unit for unit, option in options.items() if option.twice)
        return sum(self.sizes[unit][0] * self.sizes[unit][1] for unit in twice) / self.weights

    def problems(self, index: int | None) -> dict[str, UnitProblem]:
        """The units of a block that are quantized, by full name; the head alone where `index` is None.

        Reads the block's weights.
        """
        names = self.linears(index)
        folds = self._folds(index)
        ranges = load_ranges(ranges_file(self.ranges, index))
        return {
            unit: UnitProblem(
                unit=unit,
                weights={name: self._weight(name) for name in linears},
                ranges=ranges[unit if index is None else unit.rpartition(".")[2]],
                scheme=self.params.scheme,
                reduced=self.params.reduced,
                foldable=unit in folds,
            )
            for unit, linears in names.items()
            if unit not in self.kept
        }

    def values(self, index: int | None, options: Mapping[str, Option]) -> Int8Block:
        """INT8 values of a block, or of the head, with the folds that they assume.

        Args:
            index: Of the block.
            options: Full name of a unit → what is done for it; others are left as they are.
        """
        linears: dict[str, Int8Linear] = {}
        scales: dict[str, Tensor] = {}
        for unit, problem in self.problems(index).items():
            if unit not in options:
                continue
            own: UnitValues = apply(problem, options[unit])
            linears |= own.linears
            if own.scale is not None:
                scales[unit] = own.scale.cpu()
        folds: dict[str, Tensor] = {}
        for unit, scale in scales.items():
            into, fold = self._folds(index)[unit]
            rows = self.decoder.reader.shape(into)[0]
            by = scale if fold is None else divisor(fold, scale, rows)
            folds[into] = by
            name = into.removesuffix(WEIGHT)
            if name in linears:
                linears[name] = _rows_divided(linears[name], by)
        return Int8Block(linears, folds)

    @cached_property
    def _sizes(self) -> dict[str, tuple[int, int]]:
        """Full name of every unit → outputs of all its linears, and inputs."""
        shapes = {
            unit: [self.decoder.reader.shape(name + WEIGHT) for name in linears]
            for unit, linears in units_of(self.decoder.family, self.decoder.num_blocks).items()
        }
        sizes = {unit: (sum(s[0] for s in own), own[0][1]) for unit, own in shapes.items()}
        if self._has_head:
            sizes[HEAD] = (self.decoder.vocab_size, self.decoder.hidden_size)
        return sizes

    @cached_property
    def _has_head(self) -> bool:
        return head_weight(self.decoder) is not None

    def linears(self, index: int | None) -> dict[str, tuple[str, ...]]:
        """Full name of a unit → full names of its linears."""
        if index is None:
            return {HEAD: (HEAD,)} if self._has_head else {}
        prefix = self.decoder.family.block_name(index)
        return {
            f"{prefix}.{unit}": tuple(f"{prefix}.{name}" for name in linears)
            for unit, linears in self.decoder.family.units.items()
        }

    def _folds(self, index: int | None) -> dict[str, tuple[str, Fold | None]]:
        """Full name of a unit → parameter that a scale of its input can go into, and how."""
        if index is None:
            norm = final_norm(self.decoder)
            return {} if norm is None else {HEAD: (norm, None)}
        family = self.decoder.family
        prefix = family.block_name(index)
        found: dict[str, tuple[str, Fold | None]] = {}
        for fold in family.folds:
            into = f"{prefix}.{fold.into}{WEIGHT}"
            inputs = self._sizes[f"{prefix}.{fold.unit}"][1]
            if fold.into not in family.linears or fold.holds(self.decoder.reader.shape(into)[0], inputs):
                found[f"{prefix}.{fold.unit}"] = (into, fold)
        return found

    def _weight(self, name: str) -> Tensor:
        weight = head_weight(self.decoder) if name == HEAD else self.decoder.reader.read(name + WEIGHT)
        assert weight is not None
        return weight.to(self.decoder.device, torch.float32)


def _rows_divided(linear: Int8Linear, by: Tensor) -> Int8Linear:
    """A linear with its rows over a scale: codes stay what they are, as every row has a scale of its own."""
    by = by.to(linear.scales.device)
    return replace(
        linear,
        scales=linear.scales / by,
        floating_weight=linear.floating_weight / by.unsqueeze(1),
    )
