"""Runs one graph in ONNX Runtime in a process of its own, whose memory is the graph's and no other's.

Requests and answers are those of `vllm_worker`.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np

from quantflow.formats.onnx.params import SessionOptions
from quantflow.runtime.ort import OnnxModel
from quantflow.runtime.vllm_worker import memory, serve


class Server:
    """One graph, within this process."""

    def __init__(self) -> None:
        self.model: OnnxModel | None = None

    def load(self, folder: str, options: dict[str, Any]) -> dict[str, Any]:
        """Load a graph; `options` are those of `SessionOptions`."""
        idle, started = memory(), time.perf_counter()
        self.model = OnnxModel(Path(folder), SessionOptions.model_validate(options))
        return {
            "seconds": time.perf_counter() - started,
            "idle": idle,
            "dtype": self.model.dtype,
            "provider": self.model.provider,
            "vocab_size": self.model.vocab_size,
            "chunk": self.model.chunk,
        }

    def logits(self, pieces: list[list[int]], file: str) -> None:
        """Write the logits of a text that comes in pieces, `[tokens, vocab]`, as a .npy file."""
        assert self.model is not None
        sequel = self.model.start(sum(len(piece) for piece in pieces))
        np.save(file, np.concatenate([sequel.logits(np.asarray(piece, dtype=np.int64)) for piece in pieces]))

    def time(self, prompts: list[list[int]], tokens: int) -> dict[str, Any]:
        """Answer a prompt, exactly `tokens` tokens; seconds since it came.

        Of several prompts each waits for the one before it.
        """
        assert self.model is not None
        first, last = [], []
        started = time.perf_counter()
        for prompt in prompts:
            sequel = self.model.start(len(prompt) + tokens)
            *_, (_, logits) = sequel.pieces(np.asarray(prompt, dtype=np.int64))
            token = logits[-1:].argmax(-1)
            first.append(time.perf_counter() - started)
            for _ in range(tokens - 1):
                token = sequel.logits(token)[-1:].argmax(-1)
            last.append(time.perf_counter() - started)
        return {"first": first, "last": last}


if __name__ == "__main__":
    serve(Server())
