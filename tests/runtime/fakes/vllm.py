"""A stand-in for vLLM with the few parts of its interface that the worker uses; no model, no weights.

The next token depends on the last one alone, by a table drawn from a seed; a folder with quantflow.json, an
artifact, has a slightly different one. `fake` in config.json makes it fail in one of the real one's ways.
"""

import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

__version__ = "0.32.0"
SHIFT_VARIABLE, SHIFT = "FAKE_SHIFT", 0.05  # how much an artifact's logits differ


class SamplingParams:
    def __init__(self, **given: Any) -> None:
        self.__dict__.update({"prompt_logprobs": None, "ignore_eos": False} | given)


def table(vocabulary: int, artifact: bool) -> Any:
    """Log-probabilities of the next token after each token, [vocabulary, vocabulary]."""
    logits = np.random.default_rng(0).normal(size=(vocabulary, vocabulary))
    if artifact:
        shift = float(os.environ.get(SHIFT_VARIABLE, SHIFT))
        logits += shift * np.random.default_rng(1).normal(size=logits.shape)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


class LLM:
    def __init__(self, model: str, **options: Any) -> None:
        folder = Path(model)
        config = json.loads((folder / "config.json").read_text())
        self.fake = config.get("fake", "")
        if self.fake == "refuse":
            raise ValueError(
                "1 validation error for VllmConfig\n  Value error, bad group [type=value_error, input]"
            )
        print("this would get between the replies")
        print("loading", options, file=sys.stderr, flush=True)
        if self.fake == "die":
            print("Segmentation fault, of all things", file=sys.stderr, flush=True)
            os._exit(3)
        artifact = (folder / "quantflow.json").exists()
        self.table = table(config["vocab_size"], artifact)
        self.delay = 0.002 if artifact else 0.004
        self.llm_engine = self
        self.vllm_config = SimpleNamespace(
            model_config=SimpleNamespace(dtype=f"torch.{options['dtype']}", quantization=None),
            cache_config=SimpleNamespace(kv_cache_memory_bytes=options["kv_cache_memory_bytes"]),
        )
        self.waiting: dict[str, Any] = {}

    def apply_model(self, function: Any) -> list[Any]:
        method = type("UnquantizedLinearMethod", (), {})()
        return [function(SimpleNamespace(modules=lambda: [SimpleNamespace(quant_method=method)] * 12))]

    def add_request(self, name: str, prompt: Any, parameters: Any) -> None:
        self.waiting[name] = (prompt["prompt_token_ids"], parameters, [])

    def has_unfinished_requests(self) -> bool:
        return bool(self.waiting)

    def step(self) -> list[Any]:
        if self.fake == "no-kernel":
            raise AttributeError("'_OpNamespace' '_C' object has no attribute 'cpu_gemm_wna16'")
        if self.fake == "hang":
            time.sleep(60)
        time.sleep(self.delay)
        outputs = []
        for name, (ids, parameters, made) in list(self.waiting.items()):
            made.append(int(self.table[[*ids, *made][-1]].argmax()))
            finished = len(made) == parameters.max_tokens
            outputs.append(
                SimpleNamespace(
                    request_id=name,
                    finished=finished,
                    prompt_logprobs=self.prompt_logprobs(ids, parameters.prompt_logprobs),
                    outputs=[SimpleNamespace(token_ids=list(made), text=" ".join(map(str, made)))],
                )
            )
            if finished:
                del self.waiting[name]
        # As in vLLM, whoever is done first comes first, whatever the order of the requests.
        return outputs[::-1]

    def prompt_logprobs(self, ids: list[int], top: int | None) -> list[Any] | None:
        if top is None:
            return None
        places: list[Any] = [None]
        for before, token in pairwise(ids):
            row = self.table[before]
            ranked = np.argsort(-row)
            chosen = {*ranked[:top].tolist(), token}
            rank = {int(t): at for at, t in enumerate(ranked, start=1)}
            places.append({t: SimpleNamespace(logprob=float(row[t]), rank=rank[t]) for t in chosen})
        return places
