"""A unit's stored codes in the place of its weights, while all else stays as in the lossless model."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from quantflow.model.families import Family
from quantflow.quantize.codes import BlockCodes, dequantize

Swap = Callable[[Tensor], Tensor]
"""What a linear does with its input once its codes are in its place: `[..., in]` → `[..., out]`."""

WEIGHT = ".weight"
HALF_BYTES = 2
"""Scales are stored in 16 bits."""


def lossless(name: str, linear: nn.Module) -> Swap:
    """The linear as it is: what a swap that swaps nothing does."""
    weight, bias = linear.get_parameter("weight"), dict(linear.named_parameters()).get("bias")
    return lambda x: functional.linear(x, weight, bias)


class BlockSwaps(Protocol):
    """The codes of one block in one precision, to be swapped in unit by unit."""

    @property
    def units(self) -> tuple[str, ...]:
        """Units of the block that have codes, e.g. `qkv`."""

    def swap(self, name: str, linear: nn.Module) -> Swap:
        """What a linear of the block, e.g. `mlp.down_proj`, does in these codes alone.

        Args:
            name: The linear, within the block.
            linear: It, with the lossless weights; its device, dtype and bias are kept.
        """

    def is_no_op(self, unit: str, block: nn.Module) -> bool:
        """Whether the codes of a unit do exactly what its lossless weights do."""

    def bytes(self, unit: str) -> int:
        """Size of a unit's weights in these codes, scales and zero points included."""


@dataclass(frozen=True)
class WeightSwaps:
    """The codes of one block whose weights alone are quantized.

    Attributes:
        codes: As stored.
        family: The model's family.
        prefix: Full name of the block.
    """

    codes: BlockCodes
    family: Family
    prefix: str

    @property
    def units(self) -> tuple[str, ...]:
        """Units of the block that have codes, e.g. `qkv`."""
        return whole_units(self.family, self.prefix, self.codes.linears)

    def swap(self, name: str, linear: nn.Module) -> Swap:
        """As in `BlockSwaps`."""
        weight = linear.get_parameter("weight")
        own = self.weight(name).to(weight.device, weight.dtype)
        bias = dict(linear.named_parameters()).get("bias")
        return lambda x: functional.linear(x, own, bias)

    def is_no_op(self, unit: str, block: nn.Module) -> bool:
        """Whether the codes of a unit stand for the lossless weights themselves."""
        return all(
            torch.equal(self.weight(name), block.get_submodule(name).get_parameter("weight").float().cpu())
            for name in self.family.units[unit]
        )

    def weight(self, name: str) -> Tensor:
        """The weight that a linear's codes stand for where no other unit is quantized, float32 `[out, in]`.

        Codes hold a scale for each input that a norm or linear before them was divided by, and the rows of
        some were divided for the sake of a unit after them; in a model that is otherwise lossless nothing
        was, so both are undone. What remains of the unit's difference is its quantization alone.
        """
        weight = dequantize(self.codes.linears[f"{self.prefix}.{name}"])
        for fold in self.family.folds:
            scale = self.codes.folds.get(f"{self.prefix}.{fold.into}{WEIGHT}")
            if scale is None:
                continue
            if name in self.family.units[fold.unit]:
                weight /= scale[-weight.shape[1] :]  # of a fused linear's rows the last are what it reads
            if name == fold.into:
                weight *= scale.unsqueeze(1)
        return weight

    def bytes(self, unit: str) -> int:
        """Size of a unit's weights in these codes: packed codes and zero points, float16 scales."""
        total = 0
        for name in self.family.units[unit]:
            codes = self.codes.linears[f"{self.prefix}.{name}"]
            total += (codes.q.numel() + codes.zero_points.numel()) * codes.bits // 8
            total += codes.scales.numel() * HALF_BYTES
        return total


def whole_units(family: Family, prefix: str, linears: Collection[str]) -> tuple[str, ...]:
    """Units of a block all of whose linears are among those of these full names."""
    return tuple(
        unit for unit, names in family.units.items() if all(f"{prefix}.{name}" in linears for name in names)
    )
