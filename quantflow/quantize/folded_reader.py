"""Lossless tensors with the scales that INT8 values assume folded into them."""

from pathlib import Path

from torch import Tensor

from quantflow.errors import QuantizationError
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize.int8_block import Int8Block

WEIGHT = ".weight"


class FoldedReader(SafetensorsReader):
    """The lossless tensors, divided by the scales that are folded into them.

    Attributes:
        offset: What norms that are folded into add to their weight.
    """

    offset: float = 0.0

    def __init__(self, folder: Path) -> None:
        """Nothing is folded yet."""
        super().__init__(folder)
        self._folds: dict[str, Tensor] = {}

    def fold(self, block: Int8Block) -> None:
        """Divide by the folds of a block from now on.

        Raises:
            QuantizationError: One is into what there is not.
        """
        unknown = block.folds.keys() - self.names()
        if unknown:
            raise QuantizationError(
                "a scale is folded into it, and the source has no such tensor", where=min(unknown)
            )
        self._folds |= block.folds

    @property
    def folded(self) -> frozenset[str]:
        """Names of the tensors that are not as stored: what is folded into, and biases beside it."""
        owners = {name.removesuffix(WEIGHT) for name in self._folds}
        return frozenset(name for name in self.names() if name.rpartition(".")[0] in owners)

    def read(self, name: str) -> Tensor:
        """One tensor, as it is after folding."""
        tensor = super().read(name)
        owner, _, leaf = name.rpartition(".")
        scale = self._folds.get(owner + WEIGHT)
        if scale is None:
            return tensor
        is_norm = leaf == "weight" and tensor.dim() == 1
        divisor = scale.cpu() if tensor.dim() == 1 else scale.cpu().unsqueeze(1)
        offset = self.offset if is_norm else 0.0
        return (tensor.float() + offset) / divisor - offset
