"""vLLM as a runtime: one model in a process of vLLM's own environment, asked over a pipe."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quantflow.errors import ArtifactError
from quantflow.runtime import vllm_worker
from quantflow.runtime.engine import (
    INT8_ACTIVATIONS,
    Workload,
    cache_bytes,
    engine_options,
    engine_variables,
    text_config,
)
from quantflow.runtime.environment import Environment, held, worker_environment
from quantflow.runtime.params import ServingParams
from quantflow.runtime.worker import Worker, WorkerFailedError

# Imported, so that what the worker does is part of the key of every stage that uses it; it runs elsewhere.
WORKER = Path(vllm_worker.__file__)
# Nothing that works takes that long: a large model from a slow disk is loaded in some ten minutes, and what
# is asked at once is a few batches.
LOAD_TIMEOUT, ASK_TIMEOUT = 3600.0, 3600.0
_DETAIL = re.compile(r"Value error, (.*?) \[type=", re.DOTALL)
_NO_KERNEL = re.compile(r"'_OpNamespace' '\w+' object has no attribute '(\w+)'")
_MESSAGE_WIDTH = 500


@dataclass(frozen=True)
class Scores:
    """Log-probabilities at the scored tokens of one window, nats.

    Attributes:
        target: Of the token that came, [positions].
        ids: The likeliest tokens and, where it is not among them, the one that came, likeliest first; rows
            differ in length by one. Empty where none were asked for.
        logprobs: Theirs, in the same order.
    """

    target: tuple[float, ...]
    ids: tuple[tuple[int, ...], ...]
    logprobs: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Generated:
    """A greedy continuation: token ids and the text they stand for."""

    ids: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class Timing:
    """When tokens of requests that were sent together came, seconds after they were sent.

    Attributes:
        first: First token of each request.
        last: Last token of each request.
        tokens: Tokens that each request generated.
    """

    first: tuple[float, ...]
    last: tuple[float, ...]
    tokens: int


@dataclass(frozen=True)
class MemoryUse:
    """Memory of the runtime's process, bytes.

    Attributes:
        resident: Main memory now.
        peak: Main memory at most so far (VmHWM).
        device: GPU memory reserved at most so far; 0 on a CPU.
    """

    resident: int
    peak: int
    device: int


@dataclass(frozen=True)
class Loaded:
    """What vLLM says of a model that it has loaded.

    Attributes:
        seconds: Time it took.
        idle: Memory before, with vLLM imported.
        dtype: What it computes in.
        options: What else could change a figure, for the measurement.
    """

    seconds: float
    idle: MemoryUse
    dtype: str
    version: str
    options: Mapping[str, str]


class Session:
    """A loaded model.

    Attributes:
        loaded: What vLLM says of it.
    """

    def __init__(self, worker: Worker, folder: Path, loaded: Loaded) -> None:
        self._worker = worker
        self._folder = folder
        self.loaded = loaded

    def score(self, windows: Sequence[Sequence[int]], first: Sequence[int], top: int) -> list[Scores]:
        """Log-probabilities of tokens that came, given those before them.

        Args:
            windows: Token ids of each window.
            first: First token to score in each window, at least 1.
            top: How many of the likeliest tokens to tell at every position, 0 for none, at most `TOP`.
        """
        windows = [[int(token) for token in window] for window in windows]
        answers = self._ask({"do": "score", "windows": windows, "first": [int(f) for f in first], "top": top})
        return [
            Scores(
                tuple(answer["target"]),
                tuple(map(tuple, answer.get("ids", ()))),
                tuple(map(tuple, answer.get("logprobs", ()))),
            )
            for answer in answers
        ]

    def generate(self, prompts: Sequence[Sequence[int]], tokens: int) -> list[Generated]:
        """Greedy continuations of up to `tokens` tokens."""
        prompts = [[int(token) for token in prompt] for prompt in prompts]
        answers = self._ask({"do": "generate", "prompts": prompts, "tokens": tokens})
        return [Generated(tuple(answer["ids"]), answer["text"]) for answer in answers]

    def time(self, prompts: Sequence[Sequence[int]], tokens: int) -> Timing:
        """Serve all prompts at once, exactly `tokens` tokens each."""
        answer = self._ask({"do": "time", "prompts": [list(p) for p in prompts], "tokens": tokens})
        return Timing(tuple(answer["first"]), tuple(answer["last"]), tokens)

    def memory(self) -> MemoryUse:
        """What it takes now and took at most."""
        return MemoryUse(**self._ask({"do": "memory"}))

    def _ask(self, request: Mapping[str, Any]) -> Any:
        return _asked(self._worker, request, ASK_TIMEOUT, self._folder)


@contextmanager
def vllm_session(
    environment: Environment,
    folder: Path,
    params: ServingParams,
    dtype: str,
    workload: Workload,
    log: Path,
    *,
    worker: Path = WORKER,
) -> Iterator[Session]:
    """Load a model into vLLM for as long as the context lasts.

    Args:
        environment: vLLM's own.
        folder: The model, as vLLM reads it.
        params: Pinned options.
        dtype: What to compute in.
        workload: What it is loaded for.
        log: File for what vLLM says.
        worker: The program to run there.

    Raises:
        ArtifactError: vLLM cannot load it, dies or does not answer; with vLLM's own last words.
        RuntimeUnavailableError: The environment is just being changed.
    """
    config = text_config(folder)
    cache = params.cache_bytes or cache_bytes(config, workload, dtype)
    # -P: without it the worker's own folder is searched first, in which `vllm` is this module.
    command = [str(environment.python), "-P", str(worker)]
    variables = worker_environment() | engine_variables(params, environment)
    with held(environment.name), Worker(command, log, variables) as process:
        request = {
            "do": "load",
            "folder": str(folder),
            "options": engine_options(workload, dtype, cache, params),
        }
        answer = _asked(process, request, LOAD_TIMEOUT, folder)
        session = Session(process, folder, _loaded(answer, params, workload, cache))
        # A kernel that is missing shows at the first token only.
        session.generate([[0]], 1)
        yield session


def _loaded(answer: Mapping[str, Any], params: ServingParams, workload: Workload, cache: int) -> Loaded:
    versions = answer["versions"]
    layers = ", ".join(f"{name} × {number}" for name, number in sorted(answer["layers"].items()))
    options = {
        "torch": versions["torch"],
        "transformers": versions["transformers"],
        "quantization": answer["quantization"],
        "layers": layers,
        "enforce_eager": str(params.device == "cpu").lower(),
        "prefix_caching": "false",
        "max_model_len": str(workload.length),
        "max_num_seqs": str(workload.requests),
        "kv_cache_bytes": str(cache),
    }
    if params.device == "cpu":
        options |= {
            "threads": str(answer["threads"]),
            "instruction_set": answer["capability"],
            "VLLM_CPU_INT4_W4A8": INT8_ACTIVATIONS,
        }
    idle = MemoryUse(**answer["idle"])
    return Loaded(answer["seconds"], idle, answer["dtype"], versions["vllm"], options)


def _asked(worker: Worker, request: Mapping[str, Any], timeout: float, folder: Path) -> Any:
    try:
        return worker.ask(request, timeout)
    except WorkerFailedError as error:
        raise _explained(error, folder) from error
    except ArtifactError as error:
        raise ArtifactError(f"vLLM: {error.message}", where=str(folder), hint=error.hint) from error


def _explained(error: WorkerFailedError, folder: Path) -> ArtifactError:
    if kernel := _NO_KERNEL.search(error.message):
        return ArtifactError(
            f"this build of vLLM has no kernel `{kernel[1]}` for this processor",
            where=str(folder),
            hint="vLLM's CPU kernels for 4-bit weights need AVX-512; measure on such a machine, on a GPU, or "
            "with `runtime.name: torch`.",
        )
    detail = _DETAIL.search(error.message)
    message = " ".join((detail[1] if detail else error.message).split())[:_MESSAGE_WIDTH]
    return ArtifactError(f"vLLM cannot run it: {message}", where=str(folder))
