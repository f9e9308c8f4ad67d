"""Whether a checkpoint holds the tensors its model needs, in their shapes, and no others in their place."""

import re

import torch

from quantflow.errors import SourceError
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.source.consistency import HEAD

COMPUTED = re.compile(r".*rotary_emb\.(inv_freq|cos_cached|sin_cached)")
"""Tensors that old checkpoints store although every model computes them."""
MOST_NAMED = 20


def check_tensors(decoder: StreamedDecoder, reader: SafetensorsReader, reporter: Reporter) -> None:
    """Hold the tensors' names and shapes against what the architecture needs.

    Raises:
        SourceError: Tensors are missing or have other shapes, or a head contradicts that it is tied.
    """
    expected, folder = decoder.expected_tensors(), str(reader.folder)
    missing = sorted((name for name in expected if name not in reader.names()), key=in_order)
    if missing == [HEAD]:
        raise SourceError(
            f"config.json says that the head is not tied to the embedding, and {HEAD} is missing",
            where=folder,
            hint="If the head is the embedding, set tie_word_embeddings to true in config.json; else files "
            "are missing.",
        )
    if missing:
        raise SourceError(
            f"{len(missing)} of the {len(expected)} tensors of the model are missing, the first {missing[0]}",
            where=folder,
            hint="The weights are incomplete or belong to another architecture than config.json says.",
        )
    for name in sorted(expected, key=in_order):
        if reader.spec(name).shape != expected[name]:
            raise SourceError(
                f"the tensor {name} has shape {list(reader.spec(name).shape)}, config.json makes it "
                f"{list(expected[name])}",
                where=folder,
                hint="Weights and config.json do not belong together.",
            )
    for head, embedding in decoder.ties.items():
        if {embedding, head} <= reader.names() and not _equal(reader, embedding, head):
            raise SourceError(
                f"config.json says that head and embedding are one (tie_word_embeddings), but {head} is "
                f"another tensor than {embedding}",
                where=folder,
                hint="Programs take one or the other. Set tie_word_embeddings to false in config.json if the "
                f"model has a head of its own, or remove {head}.",
            )
    tied = {*decoder.ties, *decoder.ties.values()}
    unused = sorted(reader.names() - expected.keys() - tied, key=in_order)
    if unused := [name for name in unused if not COMPUTED.fullmatch(name)]:
        reporter.event(
            "tensors-not-used",
            f"{len(unused)} stored tensors are no part of the architecture and are not used, the first "
            f"{unused[0]}.",
            tensors=list(unused[:MOST_NAMED]),
        )


def in_order(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sorts names as people do: block 2 before block 10."""
    parts = re.split(r"(\d+)", name)
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in parts)


def _equal(reader: SafetensorsReader, first: str, second: str) -> bool:
    """Whether two tensors are the same, read in pieces."""
    one, other = reader.spec(first), reader.spec(second)
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return all(torch.equal(a, b) for a, b in zip(reader.chunks(first), reader.chunks(second), strict=True))
