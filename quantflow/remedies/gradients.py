"""Every unit's inputs and the gradients at its outputs, block by block from the last to the first."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quantflow.errors import SourceError
from quantflow.model.families import Family
from quantflow.sensitivity.boundaries import Boundaries


@dataclass(frozen=True)
class UnitGradients:
    """What a unit reads and how the loss hangs on what it gives, over all tokens of a text.

    Attributes:
        inputs: Of the lossless model, float32 `[tokens, d_in]`.
        gradients: Of the loss of labels drawn from the model, at the outputs of the unit's linears, one
            beside the other in their order, `[tokens, out]`.
    """

    inputs: Tensor
    gradients: Tensor


def block_gradients(
    boundaries: Boundaries, index: int, block: nn.Module, behind: list[Tensor]
) -> dict[str, UnitGradients]:
    """Run a block once more and differentiate it; take the gradients behind it to before it.

    Args:
        boundaries: The lossless states before every block.
        index: Of the block.
        block: It, with its weights.
        behind: Gradients at its output, `[B, T, d]` for each batch; in place they become those at its input.

    Returns:
        Unit, e.g. `down` → what is needed to tell what a change of it does.

    Raises:
        SourceError: A gradient is not finite.
    """
    family = boundaries.decoder.family
    parts: list[dict[str, UnitGradients]] = []
    for number, gradient in enumerate(behind):
        hidden = boundaries.state(index, number).requires_grad_()
        heard: dict[str, tuple[Tensor, Tensor]] = {}
        with torch.enable_grad(), ExitStack() as stack:
            for name in family.linears:
                stack.callback(_listen(block.get_submodule(name), name, heard))
            output = boundaries.call(index, number).run(block, hidden)
        names = list(heard)
        outputs = [heard[name][1] for name in names]
        at_input, *at_outputs = torch.autograd.grad(
            output, [hidden, *outputs], gradient.to(boundaries.decoder.device)
        )
        if not bool(torch.isfinite(at_input).all()):
            raise SourceError("the gradient of its loss is NaN or infinite", where=family.block_name(index))
        behind[number] = at_input
        parts.append(_by_unit(family, heard, dict(zip(names, at_outputs, strict=True))))
    return {
        unit: UnitGradients(
            torch.cat([part[unit].inputs for part in parts]),
            torch.cat([part[unit].gradients for part in parts]),
        )
        for unit in family.units
    }


def _listen(linear: nn.Module, name: str, heard: dict[str, tuple[Tensor, Tensor]]) -> Callable[[], None]:
    def hook(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        heard[name] = (args[0].detach(), output)

    return linear.register_forward_hook(hook).remove


def _by_unit(
    family: Family, heard: Mapping[str, tuple[Tensor, Tensor]], gradients: Mapping[str, Tensor]
) -> dict[str, UnitGradients]:
    found = {}
    for unit, names in family.units.items():
        x = heard[names[0]][0]
        g = torch.cat([gradients[name] for name in names], -1)
        found[unit] = UnitGradients(x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1]))
    return found


@torch.no_grad()
def head_gradients(boundaries: Boundaries, positions: int) -> UnitGradients:
    """The same of the head, at no more than so many scored positions, which lie evenly in the text.

    The gradient at the logits is the model's distribution less one at the label drawn from it, as wide as the
    vocabulary: that many positions do for the one unit that nothing comes after.
    """
    decoder = boundaries.decoder
    rows = final_rows(boundaries)
    rows = rows[:: max(1, -(-len(rows) // positions))].to(decoder.device)
    with decoder.loaded_head():
        gradient = decoder.logits(rows).float().softmax(-1)
    labels = torch.multinomial(gradient, 1, generator=torch.Generator(rows.device).manual_seed(0))
    gradient.scatter_add_(-1, labels, torch.full_like(labels, -1, dtype=gradient.dtype))
    return UnitGradients(rows, gradient)


@torch.no_grad()
def final_rows(boundaries: Boundaries) -> Tensor:
    """The lossless final hidden states that predict every scored position, float32 `[positions, d]`."""
    decoder, batches = boundaries.decoder, boundaries.text.batches
    result = torch.empty(sum(batch.positions for batch in batches), decoder.hidden_size)
    with decoder.loaded_around():
        for number, batch in enumerate(batches):
            final = decoder.final(boundaries.state(decoder.num_blocks, number))
            for row, start, at in batch.scored():
                result[start : start + at.stop - at.start] = final[row, at]
    return result
