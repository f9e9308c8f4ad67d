"""One pass of the calibration tokens over the blocks, each block read once, at work alone, and freed."""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from quantflow.calibrate.input_ranges import InputRanges, RangeCollector
from quantflow.calibrate.statistics import InputCollector, InputStatistics
from quantflow.errors import QuantizationError
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.forward import BlockPass


@dataclass(frozen=True)
class CalibratedBlock:
    """A block with its lossless weights loaded, valid until the next one is asked for.

    Attributes:
        index: Position in the decoder.
        module: The block.
        statistics: Unit → statistics of its input, for whoever uses them to use up; none where nothing needs
            them.
        ranges: Unit → what its input ranges over; none where nothing needs it.
    """

    index: int
    module: nn.Module
    statistics: dict[str, InputStatistics]
    ranges: dict[str, InputRanges] = field(default_factory=dict)


@torch.no_grad()
def calibrate_blocks(
    states: BlockPass,
    units: Mapping[str, Sequence[str]],
    advance: Callable[[int], None],
    searched: Collection[str] = (),
    *,
    grams: bool = True,
    ranges: bool = False,
) -> Generator[CalibratedBlock]:
    """Pass the calibration tokens through the lossless model, block by block.

    Peak memory is one block, its statistics, and the hidden states of all tokens, or of one batch where those
    are on disk. What the caller makes of a block has to be on disk when it asks for the next: an interrupted
    pass does not yield that block again.

    Args:
        states: The calibration tokens before the first block to come, without padding.
        units: Unit → names of its linears within a block; they share one input.
        advance: Told of every batch that has passed a block.
        searched: Units that a scale will be searched for.
        grams: Whether statistics with Gram matrices are collected, which most of the time goes into.
        ranges: Whether it is collected what inputs range over.

    Raises:
        QuantizationError: A unit's input or a block's output is not finite.
    """
    for index, block in states.blocks():
        collectors = _listen(index, block, units, states.tokens, searched) if grams else {}
        extremes = _watch(index, block, units, states.tokens) if ranges else {}
        if not states.run(index, block, advance):
            raise QuantizationError(
                "its output on the calibration text is NaN or infinite", where=f"block {index}"
            )
        statistics = {unit: collectors.pop(unit).finish() for unit in list(collectors)}
        found = {unit: extremes.pop(unit).finish() for unit in list(extremes)}
        yield CalibratedBlock(index, block, statistics, found)


@torch.no_grad()
def calibrate_sequentially(
    states: BlockPass, units: Mapping[str, Sequence[str]], advance: Callable[[int], None]
) -> Generator[CalibratedBlock]:
    """As `calibrate_blocks`, but each block sees what those before it make of the text as they were left.

    The caller gives the block the weights that it is to have from then on before it asks for the next. Takes
    two forwards: one for a block's statistics, with the weights it has, and one with those it was given.

    Args:
        states: The calibration tokens before the first block to come, without padding.
        units: Unit → names of its linears within a block; they share one input.
        advance: Told of every batch that has passed a block, twice.

    Raises:
        QuantizationError: A unit's input or a block's output is not finite.
    """
    for index, block in states.blocks():
        collectors = _listen(index, block, units, states.tokens)
        states.observe(index, block, advance)
        statistics = {unit: collectors.pop(unit).finish() for unit in units}
        yield CalibratedBlock(index, block, statistics)
        if not states.run(index, block, advance):
            raise QuantizationError(
                "its output on the calibration text is NaN or infinite once it is quantized",
                where=f"block {index}",
            )


def _listen(
    index: int,
    block: nn.Module,
    units: Mapping[str, Sequence[str]],
    tokens: int,
    searched: Collection[str] = (),
) -> dict[str, InputCollector]:
    return {
        unit: InputCollector(
            block.get_submodule(linears[0]), f"block {index}, {unit}", tokens, searched=unit in searched
        )
        for unit, linears in units.items()
    }


def _watch(
    index: int, block: nn.Module, units: Mapping[str, Sequence[str]], tokens: int
) -> dict[str, RangeCollector]:
    return {
        unit: RangeCollector(f"block {index}, {unit}", tokens).listen(block.get_submodule(linears[0]))
        for unit, linears in units.items()
    }


def bare_blocks(
    decoder: StreamedDecoder, first: int, advance: Callable[[int], None]
) -> Generator[CalibratedBlock]:
    """The blocks without any forward, for what needs their weights alone.

    Args:
        decoder: The model.
        first: Index of the first block to give.
        advance: Told of every block.
    """
    for index in range(first, decoder.num_blocks):
        with decoder.loaded_block(index) as block:
            yield CalibratedBlock(index, block, {})
        advance(1)
