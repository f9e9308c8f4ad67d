"""The module that makes logits of final hidden states, for what stands in for it."""

from torch import nn

from quantflow.model.decoder import StreamedDecoder


def head_module(decoder: StreamedDecoder) -> nn.Module:
    """A model's head, whose weights are there while `decoder.loaded_head()` is open."""
    head: nn.Module = decoder._model.get_output_embeddings()
    return head
