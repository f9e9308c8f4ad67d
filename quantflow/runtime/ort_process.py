"""A graph in a process of ONNX Runtime's own, asked over a pipe: its speed and memory are its own."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantflow.errors import ArtifactError
from quantflow.formats.onnx.params import SessionOptions
from quantflow.runtime import ort_worker
from quantflow.runtime.vllm import MemoryUse, Timing
from quantflow.runtime.worker import Worker

# Imported, so that what the worker does is part of the key of every stage that uses it; it runs elsewhere.
MODULE = ort_worker.__name__
TIMEOUT = 3600.0  # loading a large graph from a slow disk, or one slow round


@dataclass(frozen=True)
class LoadedGraph:
    """What is known of a graph that was loaded.

    Attributes:
        seconds: Time that loading took.
        idle: Memory before, with ONNX Runtime imported.
        dtype: What activations are in.
        provider: The execution provider.
        vocab_size: Size of its vocabulary.
        chunk: Tokens of a prompt that go through it at once, at most.
    """

    seconds: float
    idle: MemoryUse
    dtype: str
    provider: str
    vocab_size: int
    chunk: int


class GraphProcess:
    """A loaded graph.

    Attributes:
        loaded: What is known of it.
    """

    def __init__(self, worker: Worker, folder: Path, loaded: LoadedGraph) -> None:
        self._worker = worker
        self._folder = folder
        self.loaded = loaded

    def time(self, prompt: Sequence[int], tokens: int) -> Timing:
        """Answer a prompt with exactly `tokens` tokens."""
        answer = asked(
            self._worker, {"do": "time", "prompts": [list(prompt)], "tokens": tokens}, self._folder
        )
        return Timing(tuple(answer["first"]), tuple(answer["last"]), tokens)

    def logits(self, pieces: Sequence[Sequence[int]], file: Path) -> NDArray[np.float32]:
        """Logits of a text, `[tokens, vocab]`.

        Args:
            pieces: Its token ids, cut where they go through the graph one after the other.
            file: A file that they may pass through, ending in `.npy`.
        """
        given = {"do": "logits", "pieces": [list(piece) for piece in pieces], "file": str(file)}
        asked(self._worker, given, self._folder)
        logits: NDArray[np.float32] = np.load(file)
        file.unlink()
        return logits

    def memory(self) -> MemoryUse:
        """What it takes now and took at most."""
        return MemoryUse(**asked(self._worker, {"do": "memory"}, self._folder))


@contextmanager
def graph_process(folder: Path, options: SessionOptions, log: Path) -> Iterator[GraphProcess]:
    """Load a graph for as long as the context lasts.

    Args:
        folder: Folder with model.onnx and its tensors.
        options: Pinned options.
        log: File for what ONNX Runtime says.

    Raises:
        ArtifactError: It cannot be loaded, or the process dies.
    """
    with Worker([sys.executable, "-m", MODULE], log, os.environ) as worker:
        request = {"do": "load", "folder": str(folder), "options": options.model_dump(mode="json")}
        answer = asked(worker, request, folder)
        loaded = LoadedGraph(**(answer | {"idle": MemoryUse(**answer["idle"])}))
        yield GraphProcess(worker, folder, loaded)


def asked(worker: Worker, request: Mapping[str, Any], folder: Path) -> Any:
    """Ask, with the folder in what goes wrong.

    Raises:
        ArtifactError: It could not do it, died or did not answer.
    """
    try:
        return worker.ask(request, TIMEOUT)
    except ArtifactError as error:
        raise ArtifactError(f"ONNX Runtime: {error.message}", where=str(folder), hint=error.hint) from error
