"""A whole forward, block by block over all batches, so that each block's weights are read once."""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from quantflow.model.block_call import BlockCall
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.passes import PassProgress, state_of
from quantflow.model.safetensors_file import SafetensorsFile
from quantflow.pipeline.events import Reporter


class BlockPass:
    """All batches on their way through the blocks, from where an interrupted pass had come to.

    Args:
        decoder: The model.
        batches: Token ids, each `[B, T]`.
        progress: Where the way is kept.
        products: What the blocks' matrix products are computed in; weights and hidden states stay in the
            decoder's dtype, and operations that need its range do (torch's automatic mixed precision).
        spill_bytes: Hidden states that take more than this are kept on disk, one batch at a time in memory.

    Attributes:
        hidden: Hidden states of every batch, `[B, T, d]` each, before the block that comes next; none where
            they are on disk.
    """

    def __init__(
        self,
        decoder: StreamedDecoder,
        batches: Sequence[Tensor],
        progress: PassProgress,
        products: torch.dtype = torch.float32,
        spill_bytes: float = math.inf,
    ) -> None:
        self._decoder = decoder
        self._products = products
        self._progress = progress
        self._shapes = [ids.shape for ids in batches]
        self._states = [torch.Size((*shape, decoder.hidden_size)) for shape in self._shapes]
        size = sum(math.prod(state) for state in self._states) * decoder.dtype.itemsize
        self._spilled: SafetensorsFile | None = None
        self.hidden: list[Tensor] = []
        # Masks and rotary angles depend on a batch's shape alone.
        self._calls: dict[torch.Size, tuple[BlockCall, ...]] = {}
        with decoder.loaded_around():
            begin = self._begin_on_disk if size > spill_bytes else self._begin_in_memory
            self._next = begin(batches)

    @property
    def passed(self) -> int:
        """Blocks that need not be run any more."""
        return self._next

    @property
    def tokens(self) -> int:
        """Tokens of all batches."""
        return sum(math.prod(shape) for shape in self._shapes)

    def blocks(self) -> Iterator[tuple[int, nn.Module]]:
        """Every block to come with its weights loaded; the caller runs it."""
        for index in range(self._next, self._decoder.num_blocks):
            with self._decoder.loaded_block(index) as block:
                yield index, block
            self._next = index + 1
            if self._spilled is not None:
                self._spilled = self._progress.accept(self._next)
            else:
                self._progress.keep(self._next, self.hidden)

    @torch.no_grad()
    def run(self, index: int, block: nn.Module, advance: Callable[[int], None]) -> bool:
        """Take all batches through a block, one step of progress each.

        Returns:
            Whether all that came out is finite.
        """
        finite = True

        def outputs() -> Iterator[Tensor]:
            nonlocal finite
            for number in range(len(self._shapes)):
                output = self._output(number, index, block)
                finite = finite and bool(torch.isfinite(output).all())
                yield output
                advance(1)

        if self._spilled is not None:
            self._progress.write(self._states, self._decoder.dtype, outputs())
        else:
            for number, output in enumerate(outputs()):
                self.hidden[number] = output
        return finite

    @torch.no_grad()
    def observe(self, index: int, block: nn.Module, advance: Callable[[int], None]) -> None:
        """Call a block with all batches, for what listens to it; they stay where they are."""
        for number in range(len(self._shapes)):
            self._output(number, index, block)
            advance(1)

    def states(self) -> Iterator[Tensor]:
        """Hidden states of every batch before the block that comes next, or after the last, `[B, T, d]`."""
        return (self._state(number) for number in range(len(self._shapes)))

    def _output(self, number: int, index: int, block: nn.Module) -> Tensor:
        mixed = self._products != torch.float32
        with torch.autocast(self._decoder.device.type, self._products, enabled=mixed):
            return self._calls[self._shapes[number]][index].run(block, self._state(number))

    def _state(self, number: int) -> Tensor:
        if self._spilled is None:
            return self.hidden[number]
        return state_of(self._spilled, number).to(self._decoder.device, self._decoder.dtype)

    def _begin_in_memory(self, batches: Sequence[Tensor]) -> int:
        # Looked for first: embedded states beside loaded ones would be all of them twice.
        kept = self._progress.load(self._states)
        if kept is not None:
            self.hidden = [state.to(self._decoder.device, self._decoder.dtype) for state in kept[1]]
            self._learn_calls(batches)
            return kept[0]
        self.hidden = list(self._embedded(batches))
        return 0

    def _begin_on_disk(self, batches: Sequence[Tensor]) -> int:
        kept = self._progress.find(self._states)
        if kept is not None:
            passed, self._spilled = kept
            self._learn_calls(batches)
            return passed
        self._progress.write(self._states, self._decoder.dtype, self._embedded(batches))
        self._spilled = self._progress.accept(0)
        return 0

    def _embedded(self, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        for ids in batches:
            states, self._calls[ids.shape] = self._decoder.embed(ids)
            yield states

    def _learn_calls(self, batches: Sequence[Tensor]) -> None:
        for shape, ids in {ids.shape: ids for ids in batches}.items():
            self._calls[shape] = self._decoder.embed(ids)[1]


@torch.no_grad()
def final_hidden(
    decoder: StreamedDecoder, batches: Sequence[Tensor], reporter: Reporter, what: str
) -> list[Tensor]:
    """The final hidden states, before the head, of every batch.

    Windows shorter than their batch may be padded on the right without a mask: attention is causal, so no
    position sees what follows it. What comes out at padded positions means nothing.

    Args:
        decoder: The model.
        batches: Token ids, each `[B, T]`.
        reporter: Is told of progress, and keeps it.
        what: What is being computed, for the reader of the progress bar.

    Returns:
        One `[B, T, d]` per batch, on the decoder's device.
    """
    states = BlockPass(decoder, batches, PassProgress(reporter))
    with reporter.track(what, decoder.num_blocks * len(batches)) as advance:
        advance(states.passed * len(batches))
        for index, block in states.blocks():
            states.run(index, block, advance)
    for number, hidden in enumerate(states.hidden):  # in place: a second list would be all of them twice
        states.hidden[number] = decoder.final(hidden)
    return states.hidden
