"""Whether a model of an architecture that is not listed computes the same block by block as by itself."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from quantflow.errors import QuantFlowError
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.families import Family
from quantflow.model.supported import refusal

LENGTH = 24
"""Tokens of a window: enough for positions and masks to matter."""
MOST_DIFFERENCE = 1e-3
"""Largest difference of two logits, as a part of the largest logit, that rounding explains: float32 was
measured at 1e-6; what misses a block's state or a mask, at 0.1 and more."""


def check_streaming(decoder: StreamedDecoder) -> None:
    """Hold the model run block by block against its own forward, on random tokens.

    Calibration takes blocks alone, calls them with what they were called with for other tokens, pads on the
    right, and takes one input for all linears of a unit. Each of it is tried. Costs two readings of the
    weights.

    Raises:
        RecipeError: The model does not work that way, or fails.
    """
    kind = decoder.family.model_type
    try:
        _compare(decoder, kind)
    except QuantFlowError:
        raise
    except Exception as cause:  # code that nobody has tried in this way can fail in any way
        raise refusal(kind, f"running it block by block fails: {type(cause).__name__}: {cause}") from cause


@torch.no_grad()
def _compare(decoder: StreamedDecoder, kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    others, ids = torch.randint(decoder.vocab_size, (2, 2, LENGTH), generator=generator)
    ids[1, :-1] = ids[0, :-1]
    _, calls = decoder.embed(others)
    hidden, _ = decoder.embed(ids)
    for index in range(decoder.num_blocks):
        with decoder.loaded_block(index) as block, _listening(block, decoder.family) as inputs:
            hidden = calls[index].run(block, hidden)
        _check_inputs(inputs, decoder.family, kind, index)
    streamed = decoder.logits(decoder.final(hidden)).float()
    plain = decoder.plain_logits(ids).float()
    allowed = MOST_DIFFERENCE * float(plain.abs().max())
    if float((streamed - plain).abs().max()) > allowed:
        raise refusal(kind, "block by block it computes something else than by itself")
    if float((plain[0, :-1] - plain[1, :-1]).abs().max()) > allowed:
        raise refusal(kind, "its attention sees later tokens, so that it is no causal language model")


@contextmanager
def _listening(block: nn.Module, family: Family) -> Iterator[dict[str, list[Tensor]]]:
    """Linear → the inputs it is called with."""
    inputs: dict[str, list[Tensor]] = {linear: [] for linear in family.linears}

    def keep(linear: str) -> Any:
        return lambda module, args: inputs[linear].append(args[0])

    handles = [block.get_submodule(name).register_forward_pre_hook(keep(name)) for name in inputs]
    try:
        yield inputs
    finally:
        for handle in handles:
            handle.remove()


def _check_inputs(inputs: dict[str, list[Tensor]], family: Family, kind: str, block: int) -> None:
    for linear, seen in inputs.items():
        if not seen:
            raise refusal(kind, f"block {block} does not call {linear} as a layer")
    for unit, linears in family.units.items():
        if not all(_equal(inputs[linears[0]], inputs[linear]) for linear in linears):
            raise refusal(kind, f"in block {block} the layers of {unit} have different inputs")


def _equal(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
