"""One pass of the calibration tokens over the blocks, each block read once, at work alone, and freed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quantflow.calibrate.statistics import InputCollector, InputStatistics
from quantflow.errors import QuantizationError
from quantflow.model.decoder import StreamedDecoder


@dataclass(frozen=True)
class CalibratedBlock:
    """A block with its lossless weights loaded, valid until the next one is asked for.

    Attributes:
        index: Position in the decoder.
        module: The block.
        statistics: Unit → statistics of its input.
    """

    index: int
    module: nn.Module
    statistics: Mapping[str, InputStatistics]


@torch.no_grad()
def calibrate_blocks(
    decoder: StreamedDecoder, batches: Sequence[Tensor], units: Mapping[str, Sequence[str]]
) -> Iterator[CalibratedBlock]:
    """Pass the calibration tokens through the lossless model, block by block.

    Peak memory is one block, its statistics, and the hidden states of all tokens.

    Args:
        decoder: The lossless model.
        batches: int64 token ids `[B, T]`, without padding.
        units: Unit → names of its linears within a block; they share one input.

    Raises:
        QuantizationError: A unit's input or a block's output is not finite.
    """
    with decoder.loaded_embedding():
        embedded = [decoder.embed(batch) for batch in batches]
    hidden = [states for states, _ in embedded]
    calls = [batch_calls for _, batch_calls in embedded]
    for index in range(decoder.num_blocks):
        with decoder.loaded_block(index) as block:
            collectors = {
                unit: InputCollector(block.get_submodule(linears[0]), f"block {index}, {unit}")
                for unit, linears in units.items()
            }
            for number, states in enumerate(hidden):
                hidden[number] = calls[number][index].run(block, states)
            if not all(bool(torch.isfinite(states).all()) for states in hidden):
                raise QuantizationError(
                    "its output on the calibration text is NaN or infinite", where=f"block {index}"
                )
            statistics = {unit: collector.finish() for unit, collector in collectors.items()}
            yield CalibratedBlock(index, block, statistics)
