"""A whole forward, block by block over all batches, so that each block's weights are read once."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from quantflow.model.decoder import BlockCall, StreamedDecoder
from quantflow.model.passes import PassProgress
from quantflow.pipeline.events import Reporter


class BlockPass:
    """All batches on their way through the blocks, from where an interrupted pass had come to.

    Args:
        decoder: The model.
        batches: Token ids, each `[B, T]`.
        progress: Where the way is kept.
        products: What the blocks' matrix products are computed in; weights and hidden states stay in the
            decoder's dtype, and operations that need its range do (torch's automatic mixed precision).

    Attributes:
        hidden: Hidden states of every batch, `[B, T, d]` each, before the block that comes next.
    """

    def __init__(
        self,
        decoder: StreamedDecoder,
        batches: Sequence[Tensor],
        progress: PassProgress,
        products: torch.dtype = torch.float32,
    ) -> None:
        self._decoder = decoder
        self._products = products
        self._progress = progress
        self._shapes = [ids.shape for ids in batches]
        # Looked for first: embedded states beside loaded ones would be all of them twice.
        kept = progress.load([torch.Size((*shape, decoder.hidden_size)) for shape in self._shapes])
        self._next = 0 if kept is None else kept[0]
        self.hidden = [] if kept is None else [s.to(decoder.device, decoder.dtype) for s in kept[1]]
        # Masks and rotary angles depend on a batch's shape alone.
        self._calls: dict[torch.Size, tuple[BlockCall, ...]] = {}
        with decoder.loaded_embedding():
            for ids in batches:
                if kept is None or ids.shape not in self._calls:
                    states, self._calls[ids.shape] = decoder.embed(ids)
                    if kept is None:
                        self.hidden.append(states)

    @property
    def passed(self) -> int:
        """Blocks that need not be run any more."""
        return self._next

    def blocks(self) -> Iterator[tuple[int, nn.Module]]:
        """Every block to come with its weights loaded; the caller runs it."""
        for index in range(self._next, self._decoder.num_blocks):
            with self._decoder.loaded_block(index) as block:
                yield index, block
            self._next = index + 1
            self._progress.keep(self._next, self.hidden)

    @torch.no_grad()
    def run(self, index: int, block: nn.Module, advance: Callable[[int], None]) -> None:
        """Take all batches through a block, one step of progress each."""
        mixed = self._products != self._decoder.dtype
        for number, states in enumerate(self.hidden):
            with torch.autocast(self._decoder.device.type, self._products, enabled=mixed):
                self.hidden[number] = self._calls[self._shapes[number]][index].run(block, states)
            advance(1)


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
