"""A whole model in INT8, emulated in torch: every linear computes what its QDQ graph would, in float32."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from quantflow.model.decoder import StreamedDecoder
from quantflow.model.families import Family
from quantflow.model.replaced import forwards_replaced
from quantflow.model.units import HEAD
from quantflow.quantize.folded_reader import WEIGHT, FoldedReader
from quantflow.quantize.int8 import Int8Linear, emulate
from quantflow.quantize.int8_block import Int8Block

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
        self._own = FoldedReader(folder)
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


def _on(block: Int8Block, device: torch.device) -> Int8Block:
    if device.type == "cpu":
        return block
    moved = {
        name: replace(
            linear,
            q=linear.q.to(device),
            scales=linear.scales.to(device),
            floating_channels=linear.floating_channels.to(device),
            floating_weight=linear.floating_weight.to(device),
        )
        for name, linear in block.linears.items()
    }
    return Int8Block(moved, block.folds)
