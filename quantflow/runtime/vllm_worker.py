"""Runs vLLM for QuantFlow, with the Python of vLLM's own environment; imports nothing of QuantFlow.

Reads one JSON object a line from standard input, `{"do": …, …}`, and answers each on standard output with
`{"ok": …}` or `{"error": type, "message": text}`. Whatever else would be printed goes to standard error. When
standard input ends, because the process that started this one has ended, everything ends at once.
"""

import collections
import json
import os
import queue
import re
import signal
import sys
import threading
import time
from typing import Any

PROC_STATUS = re.compile(r"^(VmRSS|VmHWM):\s+(\d+) kB", re.MULTILINE)


def memory() -> dict[str, int]:
    """Resident memory of this process now and at most, bytes; of the GPU what torch has reserved."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123
        found = {name: int(kilobytes) * 1024 for name, kilobytes in PROC_STATUS.findall(file.read())}
    torch = sys.modules.get("torch")
    device = torch.cuda.max_memory_reserved() if torch is not None and torch.cuda.is_initialized() else 0
    return {"resident": found["VmRSS"], "peak": found["VmHWM"], "device": device}


class Server:
    """One model in vLLM, within this process."""

    def __init__(self) -> None:
        self.engine: Any = None
        self.requests = 0

    def load(self, folder: str, options: dict[str, Any]) -> dict[str, Any]:
        """Load a model; `options` are vLLM's own engine arguments."""
        import torch
        import transformers
        import vllm

        idle, started = memory(), time.perf_counter()
        llm = vllm.LLM(model=folder, **options)
        self.engine = llm.llm_engine
        config = self.engine.vllm_config
        return {
            "seconds": time.perf_counter() - started,
            "idle": idle,
            "loaded": memory(),
            "versions": {
                "vllm": vllm.__version__,
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            },
            "dtype": str(config.model_config.dtype).removeprefix("torch."),
            "quantization": str(config.model_config.quantization or "none"),
            "threads": torch.get_num_threads(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "layers": llm.apply_model(census)[0],
            "cache_bytes": config.cache_config.kv_cache_memory_bytes,
        }

    def score(self, windows: list[list[int]], first: list[int], top: int) -> list[dict[str, Any]]:
        """Log-probabilities of each window's tokens from `first` on, and of the `top` likeliest there."""
        outputs = self.run(windows, max_tokens=1, prompt_logprobs=top)
        scored = []
        for ids, begin, output in zip(windows, first, outputs, strict=True):
            places = [output.prompt_logprobs[at] for at in range(begin, len(ids))]
            targets = [place[ids[at]].logprob for at, place in enumerate(places, start=begin)]
            answer: dict[str, Any] = {"target": targets}
            if top:
                # The token that came is in there as well where it is not among the likeliest; by rank, the
                # likeliest first.
                ranked = [sorted(place.items(), key=lambda item: item[1].rank) for place in places]
                answer["ids"] = [[token for token, _ in place] for place in ranked]
                answer["logprobs"] = [[value.logprob for _, value in place] for place in ranked]
            scored.append(answer)
        return scored

    def generate(self, prompts: list[list[int]], tokens: int) -> list[dict[str, Any]]:
        """Greedy continuations of up to `tokens` tokens, as ids and as text."""
        outputs = [output.outputs[0] for output in self.run(prompts, max_tokens=tokens)]
        return [{"ids": list(output.token_ids), "text": output.text} for output in outputs]

    def time(self, prompts: list[list[int]], tokens: int) -> dict[str, Any]:
        """Serve all prompts at once, exactly `tokens` tokens each; seconds since they were sent."""
        started = time.perf_counter()
        names = self.send(prompts, max_tokens=tokens, ignore_eos=True, detokenize=False)
        first: dict[str, float] = {}
        last: dict[str, float] = {}
        while self.engine.has_unfinished_requests():
            outputs = self.engine.step()
            now = time.perf_counter() - started
            for output in outputs:
                if output.outputs[0].token_ids:
                    first.setdefault(output.request_id, now)
                    last[output.request_id] = now
        return {"first": [first[name] for name in names], "last": [last[name] for name in names]}

    def run(self, prompts: list[list[int]], **sampling: Any) -> list[Any]:
        """Finished outputs of the prompts, in their order."""
        names = self.send(prompts, **sampling)
        finished = {}
        while self.engine.has_unfinished_requests():
            finished.update({output.request_id: output for output in self.engine.step() if output.finished})
        return [finished[name] for name in names]

    def send(self, prompts: list[list[int]], **sampling: Any) -> list[str]:
        """Give greedy requests to the engine; their names."""
        from vllm import SamplingParams

        names = []
        for ids in prompts:
            self.requests += 1
            names.append(str(self.requests))
            parameters = SamplingParams(temperature=0.0, **sampling)
            self.engine.add_request(names[-1], {"prompt_token_ids": ids}, parameters)
        return names


def census(model: Any) -> dict[str, int]:
    """How the model's layers are really computed: method and kernel → number of layers."""
    found: collections.Counter[str] = collections.Counter()
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if method is not None:
            kernel = getattr(method, "kernel", None)
            found["/".join(type(part).__name__ for part in (method, kernel) if part is not None)] += 1
    return dict(found)


def answer(server: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Do what a request says."""
    name = request.pop("do")
    try:
        if name == "memory":
            return {"ok": memory()}
        if name not in ("load", "score", "generate", "logits", "time"):
            return {"error": "ValueError", "message": f"no such request: {name}"}
        return {"ok": getattr(server, name)(**request)}
    except Exception as error:  # told to whoever asked; the trace goes to the log
        import traceback

        traceback.print_exc()
        return {"error": type(error).__name__, "message": str(error)}


def read_requests(requests: "queue.Queue[str]") -> None:
    """Pass lines of standard input on, and end the whole process group when it ends."""
    for line in sys.stdin:
        requests.put(line)
    os.killpg(0, signal.SIGKILL)


def serve(server: Any) -> None:
    """Let a server answer requests until standard input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not get between the replies
    requests: queue.Queue[str] = queue.Queue()
    threading.Thread(target=read_requests, args=(requests,), daemon=True).start()
    while True:
        json.dump(answer(server, json.loads(requests.get())), replies)
        replies.write("\n")
        replies.flush()


if __name__ == "__main__":
    serve(Server())
