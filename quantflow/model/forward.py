"""A whole forward, block by block over all batches, so that each block's weights are read once."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from quantflow.model.decoder import StreamedDecoder
from quantflow.model.passes import PassProgress
from quantflow.pipeline.events import Reporter


class BlockPass:
    """All batches on their way through the blocks, from where an interrupted pass had come to.

    Args:
        decoder: The model.
        batches: Token ids, each `[B, T]`.
        progress: Where the way is kept.

    Attributes:
        hidden: Hidden states of every batch, `[B, T, d]` each, before the block that comes next.
    """

    def __init__(self, decoder: StreamedDecoder, batches: Sequence[Tensor], progress: PassProgress) -> None:
        with decoder.loaded_embedding():
            embedded = [decoder.embed(ids) for ids in batches]
        self.hidden = [states for states, _ in embedded]
        self._calls = [calls for _, calls in embedded]
        self._decoder = decoder
        self._progress = progress
        self._next = 0
        kept = progress.load([states.shape for states in self.hidden])
        if kept is not None:
            self._next = kept[0]
            self.hidden = [states.to(decoder.device, decoder.dtype) for states in kept[1]]

    @property
    def passed(self) -> int:
        """Blocks that need not be run any more."""
        return self._next

    def blocks(self, done: Callable[[int], None] = lambda blocks: None) -> Iterator[tuple[int, nn.Module]]:
        """Every block to come with its weights loaded; the caller runs it.

        Args:
            done: Told of every block once the way behind it is kept.
        """
        for index in range(self._next, self._decoder.num_blocks):
            with self._decoder.loaded_block(index) as block:
                yield index, block
            self._next = index + 1
            self._progress.keep(self._next, self.hidden)
            done(1)

    @torch.no_grad()
    def run(self, index: int, block: nn.Module, advance: Callable[[int], None] = lambda steps: None) -> None:
        """Take all batches through a block, one step of progress each."""
        for number, states in enumerate(self.hidden):
            self.hidden[number] = self._calls[number][index].run(block, states)
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
    states = BlockPass(decoder, batches, PassProgress(reporter.progress_folder))
    with reporter.track(what, decoder.num_blocks * len(batches)) as advance:
        advance(states.passed * len(batches))
        for index, block in states.blocks():
            states.run(index, block, advance)
    return [decoder.final(hidden) for hidden in states.hidden]
