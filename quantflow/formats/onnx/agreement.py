"""The lossless graph held against the model itself in torch, before anything is made of it."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from quantflow.errors import QuantizationError
from quantflow.formats.onnx.params import SessionOptions
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from quantflow.runtime.ort_process import graph_process

ALLOWED = 1e-3
"""Largest difference of a logit: sums in another order differ less in float32, another mask far more."""
TOKENS = 64
"""Tokens that both are asked about: enough for positions to tell, few enough to cost next to nothing."""


def require_agreement(folder: Path, checkpoint: Path, made_by: str, work: Path) -> float:
    """Hold a float32 graph's logits against those of the model in torch, in one piece and in several.

    Args:
        folder: The graph's.
        checkpoint: The model's.
        made_by: What made the graph, for the message.
        work: A folder for logits and for what ONNX Runtime says; it has a process of its own, so that the
            memory which it takes for the graph is given back.

    Returns:
        The largest difference of a logit.

    Raises:
        QuantizationError: They differ.
        ArtifactError: ONNX Runtime cannot load or run the graph.
    """
    decoder = StreamedDecoder(checkpoint, SafetensorsReader(checkpoint))
    context = getattr(decoder.config, "max_position_embeddings", None) or TOKENS
    ids = np.random.default_rng(0).integers(0, decoder.vocab_size, min(TOKENS, context))
    expected = decoder.plain_logits(torch.from_numpy(ids)[None])[0].numpy()
    del decoder
    worst = 0.0
    for how, logits in _of_graph(folder, ids, work):
        difference = float(np.abs(logits - expected).max())
        if not difference <= ALLOWED:  # nor is what is no number
            raise QuantizationError(
                f"the graph that {made_by} made says something else than the model in torch: with its "
                f"tokens {how}, a logit differs by {difference:.2g}, and {ALLOWED} is allowed",
                where=str(checkpoint),
                hint="No ONNX artifact is made of it. Another version of what made the graph may do better.",
            )
        worst = max(worst, difference)
    return worst


def _of_graph(folder: Path, ids: NDArray[np.int64], work: Path) -> Iterator[tuple[str, NDArray[np.float32]]]:
    options = SessionOptions(provider="cpu", version="", threads=len(os.sched_getaffinity(0)))
    file, third = work / "logits.npy", ids.size // 3
    # Many at once, one as in decoding, and many after a past.
    pieces = np.split(ids, [third, third + 1])
    with graph_process(folder, options, work / "onnxruntime.log") as graph:
        yield "in one piece", graph.logits([ids.tolist()], file)
        yield "in several pieces", graph.logits([piece.tolist() for piece in pieces], file)
