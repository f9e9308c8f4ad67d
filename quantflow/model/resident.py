"""A model whose weights stay in memory over many forwards, where they fit."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from quantflow.hardware.memory import find_memory
from quantflow.model.decoder import StreamedDecoder

# The rest is for activations, the key-value cache and what else runs.
SHARE_OF_FREE_MEMORY = 0.6


@contextmanager
def resident(decoder: StreamedDecoder, most_bytes: float) -> Iterator[bool]:
    """Keep all weights of a model in memory, so that they are read once and not for every forward.

    What is computed is the same either way.

    Args:
        decoder: The model.
        most_bytes: Largest model to do that for; a larger one's blocks load their weights each time.

    Yields:
        Whether they are kept.
    """
    parameters = sum(math.prod(shape) for shape in decoder.expected_tensors().values())
    fits = parameters * decoder.dtype.itemsize <= most_bytes
    with ExitStack() as stack:
        if fits:
            stack.enter_context(decoder.loaded_embedding())
            for index in range(decoder.num_blocks):
                stack.enter_context(decoder.loaded_block(index))
            stack.enter_context(decoder.loaded_head())
        yield fits


def room_for_weights(device: torch.device) -> float:
    """Bytes that a model's weights may take of the memory that is free now, of the device that computes."""
    if device.type == "cuda":
        return SHARE_OF_FREE_MEMORY * torch.cuda.mem_get_info(device)[0]
    memory = find_memory()
    return math.inf if memory is None else SHARE_OF_FREE_MEMORY * memory.available
