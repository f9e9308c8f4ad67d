"""A whole model in INT8, emulated in torch: every linear computes what its QDQ graph would, in float32."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from quantflow.errors import QuantizationError
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.families import Family
from quantflow.model.replaced import forwards_replaced
from quantflow.model.units import HEAD
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize.int8 import Int8Linear, emulate
from quantflow.quantize.int8_block import Int8Block

WEIGHT = ".weight"
Values = Callable[[int | None], Int8Block]
"""Gives the INT8 values of a block, or of what is outside the blocks where asked for None."""


class EmulatedDecoder(StreamedDecoder):
    """A causal language model some or all of whose linears are INT8, run block by block in torch.

    Linears without values compute as ever, from weights divided by the folds that the others assume.

    Args:
        folder: The lossless model.
        values: Gives the INT8 values; asked once each time a block is loaded.
        device: Where to compute.

    Raises:
        QuantizationError: A fold is into what the model does not have.
    """

    def __init__(self, folder: Path, values: Values, device: str = "cpu") -> None:
        self._own = _FoldedReader(folder)
        super().__init__(folder, self._own, device, torch.float32)
        self._values = values
        self._outside = _on(values(None), self.device)
        self._own.offset = self.family.norm_offset
        self._own.fold(self._outside)

    @contextmanager
    def loaded_block(self, index: int) -> Iterator[nn.Module]:
        """A block with its weights, its INT8 linears standing in for the lossless ones."""
        own = _on(self._values(index), self.device)
        self._own.fold(own)
        prefix = f"{self.family.block_name(index)}."
        with super().loaded_block(index) as block, ExitStack() as stack:
            for name, linear in own.linears.items():
                module = block.get_submodule(name.removeprefix(prefix))
                stack.enter_context(forwards_replaced([module], emulated_forward(linear, module)))
            yield block

    def logits(self, final: Tensor) -> Tensor:
        """As of the lossless model, from an INT8 head where it has one."""
        linear = self._outside.linears.get(HEAD)
        if linear is None:
            return super().logits(final)
        head: Any = self._model.get_output_embeddings()
        with forwards_replaced([head], emulated_forward(linear, head)):
            return super().logits(final)


def emulated_forward(linear: Int8Linear, module: nn.Module) -> Callable[[Tensor], Tensor]:
    """What a linear does in INT8.

    Args:
        linear: Its values.
        module: The linear whose bias it has; the weight is not looked at.
    """
    bias = dict(module.named_parameters()).get("bias")

    def forward(x: Tensor) -> Tensor:
        y = emulate(linear, x)
        return y if bias is None else y + bias

    return forward


def alone(block: Int8Block, family: Family, prefix: str, name: str) -> Callable[[Tensor], Tensor]:
    """What a linear does in INT8 where all else is lossless, without its bias: nothing is folded there.

    Args:
        block: Values of its block, or of what is outside the blocks.
        family: The model's family.
        prefix: Full name of the block; empty outside the blocks.
        name: The linear within the block, e.g. `mlp.down_proj`; or `lm_head`.

    Returns:
        Inputs of the lossless model, `[..., in]` → outputs, float32 `[..., out]`.
    """
    linear = block.linears[f"{prefix}.{name}" if prefix else name]
    before = None if prefix else next(iter(block.folds.values()), None)
    after = None
    for fold in family.folds if prefix else ():
        scale = block.folds.get(f"{prefix}.{fold.into}{WEIGHT}")
        if scale is not None and name in family.units[fold.unit]:
            before = scale[-linear.q.shape[1] :]  # of a fused linear's rows the last are what it reads
        if scale is not None and name == fold.into:
            after = scale

    def forward(x: Tensor) -> Tensor:
        y = emulate(linear, x if before is None else x / before.to(x.device))
        return y if after is None else y * after.to(y.device)

    return forward


class _FoldedReader(SafetensorsReader):
    """The lossless tensors, divided by the scales that are folded into them.

    Attributes:
        offset: What norms that are folded into add to their weight.
    """

    offset: float = 0.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folds: dict[str, Tensor] = {}

    def fold(self, block: Int8Block) -> None:
        """Divide by the folds of a block from now on."""
        unknown = block.folds.keys() - self.names()
        if unknown:
            raise QuantizationError(
                "a scale is folded into it, and the source has no such tensor", where=min(unknown)
            )
        self._folds |= block.folds

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


def _on(block: Int8Block, device: torch.device) -> Int8Block:
    if device.type == "cpu":
        return block
    moved = {
        name: Int8Linear(
            q=linear.q.to(device),
            scales=linear.scales.to(device),
            input=linear.input,
            floating_channels=linear.floating_channels.to(device),
            floating_weight=linear.floating_weight.to(device),
        )
        for name, linear in block.linears.items()
    }
    return Int8Block(moved, block.folds)
