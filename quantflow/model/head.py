"""The head and the norm before it, found by their tensors."""

from torch import Tensor, nn

from quantflow.model.decoder import StreamedDecoder
from quantflow.model.units import HEAD

WEIGHT = ".weight"


def head_weight(decoder: StreamedDecoder) -> Tensor | None:
    """The weight of the head, as stored, `[vocabulary, d]`; None where the model calls it otherwise.

    Args:
        decoder: The model; where head and embedding are tied it is the embedding's.
    """
    name = head_tensor(decoder)
    return None if name is None else decoder.reader.read(name)


def head_tensor(decoder: StreamedDecoder) -> str | None:
    """The name that the head's weight is stored under; None where the model calls it otherwise."""
    name = f"{HEAD}{WEIGHT}"
    stored = decoder.reader.names()
    if name not in stored:
        name = decoder.ties.get(name, "")
    return name if name in stored else None


def head_module(decoder: StreamedDecoder) -> nn.Module:
    """The head itself, for what stands in for it; its weights are there while `loaded_head` is open."""
    head: nn.Module = decoder._model.get_output_embeddings()
    return head


def final_norm(decoder: StreamedDecoder) -> str | None:
    """The parameter of the norm that the head reads the output of, e.g. `model.norm.weight`.

    None where that is not known: there are several, or the family is not listed.
    """
    inside = f"{decoder.family.blocks}."
    found = [
        name
        for name, shape in decoder.expected_tensors().items()
        if name.endswith(WEIGHT) and shape == (decoder.hidden_size,) and not name.startswith(inside)
    ]
    return found[0] if len(found) == 1 and decoder.family.listed else None
