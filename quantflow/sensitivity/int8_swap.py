"""INT8 values in the place of a unit's weights, its input quantized as well where the scheme says so."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from quantflow.model.families import Family
from quantflow.model.units import HEAD
from quantflow.quantize.emulated import alone
from quantflow.quantize.int8_block import Int8Block, int8_file, int8_linears, read_int8_block
from quantflow.quantize.params import Scheme
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
        """Whether unit and lossless weights do the same: never where inputs are quantized."""
        return False

    def bytes(self, unit: str) -> int:
        """Codes, scales, and what is apart in floating point."""
        total = 0
        for name in self.family.units[unit] if self.prefix else (HEAD,):
            linear = self.values.linears[f"{self.prefix}.{name}" if self.prefix else name]
            tensors = (linear.q, linear.scales, linear.floating_weight, linear.floating_channels)
            total += sum(tensor.numel() * tensor.itemsize for tensor in tensors)
        return total


@dataclass(frozen=True)
class Int8Codes:
    """The INT8 values of a model, as a stage wrote them.

    Attributes:
        folder: The stage's output.
        scheme: The scheme.
        family: The model's family.
    """

    folder: Path
    scheme: Scheme
    family: Family

    @property
    def precision(self) -> str:
        """The scheme's id."""
        return self.scheme.id

    def units(self, block: int) -> tuple[str, ...]:
        """As in `Codes`."""
        linears = int8_linears(int8_file(self.folder, self.scheme.id, block))
        return whole_units(self.family, self.family.block_name(block), linears)

    def open(self, block: int) -> Int8Swaps:
        """The values of a block."""
        values = read_int8_block(self.folder, self.scheme.id, block)
        return Int8Swaps(values, self.family, self.family.block_name(block))

    def open_head(self) -> Int8Swaps | None:
        """The values of the head, if it has any."""
        values = read_int8_block(self.folder, self.scheme.id, None)
        return Int8Swaps(values, self.family, "") if HEAD in values.linears else None
