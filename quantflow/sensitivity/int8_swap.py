"""INT8 values in the place of a unit's weights, its input quantized as well where the scheme says so."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quantflow.model.families import Family
from quantflow.model.units import HEAD
from quantflow.quantize.emulated import alone
from quantflow.quantize.int8 import int8_dequantized
from quantflow.quantize.int8_block import Int8Block
from quantflow.sensitivity.swap import Swap, whole_units


@dataclass(frozen=True)
class Int8Swaps:
    """The INT8 values of one block, or of the head where `prefix` is empty.

    Attributes:
        values: As stored.
        family: The model's family.
        prefix: Full name of the block.
    """

    values: Int8Block
    family: Family
    prefix: str

    @property
    def units(self) -> tuple[str, ...]:
        """As in `BlockSwaps`."""
        if not self.prefix:
            return (HEAD,) if HEAD in self.values.linears else ()
        return whole_units(self.family, self.prefix, self.values.linears)

    def swap(self, name: str, linear: nn.Module) -> Swap:
        """As in `BlockSwaps`: the arithmetic of the QDQ graph, with folds undone."""
        own = alone(self.values, self.family, self.prefix, name)
        bias = dict(linear.named_parameters()).get("bias")

        def forward(x: Tensor) -> Tensor:
            y = own(x)
            return y if bias is None else y + bias

        return forward

    def is_no_op(self, unit: str, block: nn.Module) -> bool:
        """Whether unit and lossless weights do the same: never where inputs are quantized or scaled."""
        weights = {name: self.values.linears[self._full(name)] for name in self._linears(unit)}
        return not self.values.folds and all(
            own.input is None
            and torch.equal(
                int8_dequantized(own), block.get_submodule(name).get_parameter("weight").float().cpu()
            )
            for name, own in weights.items()
        )

    def bytes(self, unit: str) -> int:
        """Codes, scales, and what is apart in floating point."""
        total = 0
        for name in self._linears(unit):
            linear = self.values.linears[self._full(name)]
            tensors = (linear.q, linear.scales, linear.floating_weight, linear.floating_channels)
            total += sum(tensor.numel() * tensor.itemsize for tensor in tensors)
        return total

    def _linears(self, unit: str) -> tuple[str, ...]:
        return self.family.units[unit] if self.prefix else (HEAD,)

    def _full(self, name: str) -> str:
        return f"{self.prefix}.{name}" if self.prefix else name
