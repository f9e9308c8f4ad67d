"""A whole forward, block by block over all batches, so that each block's weights are read once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from quantflow.model.decoder import StreamedDecoder
from quantflow.pipeline.events import Reporter


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
        reporter: Is told of progress.
        what: What is being computed, for the reader of the progress bar.

    Returns:
        One `[B, T, d]` per batch, on the decoder's device.
    """
    with decoder.loaded_embedding():
        embedded = [decoder.embed(ids) for ids in batches]
    hidden = [states for states, _ in embedded]
    calls = [batch_calls for _, batch_calls in embedded]
    with reporter.track(what, decoder.num_blocks * len(batches)) as advance:
        for index in range(decoder.num_blocks):
            with decoder.loaded_block(index) as block:
                for number, states in enumerate(hidden):
                    hidden[number] = calls[number][index].run(block, states)
                    advance(1)
    return [decoder.final(states) for states in hidden]
