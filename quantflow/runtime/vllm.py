"""vLLM as a runtime: one model in a process of vLLM's own environment, asked over a pipe."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quantflow.errors import ArtifactError
from quantflow.runtime import vllm_worker
from quantflow.runtime.environment import Environment, held, worker_environment
from quantflow.runtime.params import ServingParams
from quantflow.runtime.worker import Worker, WorkerFailedError

# Imported, so that what the worker does is part of the key of every stage that uses it; it runs elsewhere.
WORKER = Path(vllm_worker.__file__)
# Nothing that works takes that long: a large model from a slow disk is loaded in some ten minutes, and what
# is asked at once is a few batches.
LOAD_TIMEOUT, ASK_TIMEOUT = 3600.0, 3600.0
# Likeliest tokens asked for beside the one that came: the more, the closer the lower bound of a KL, and the
# more of vLLM's time goes into Python objects.
TOP = 64
SMALLEST_CACHE = 1 << 29
# Whether its CPU kernels for 4-bit weights may round activations to 8 bits, which they do where there is AMX:
# vLLM's own default, so it is what one deploys.
INT8_ACTIVATIONS = "1"
# Of the cache that the tokens need: vLLM gives it out in blocks, and keeps some to itself.
CACHE_SLACK = 1.25
# vLLM's CPU backend keeps keys and values of 128 tokens in a block, and a request its last block to itself.
BLOCK_TOKENS = 128
_DETAIL = re.compile(r"Value error, (.*?) \[type=", re.DOTALL)
_NO_KERNEL = re.compile(r"'_OpNamespace' '\w+' object has no attribute '(\w+)'")
_MESSAGE_WIDTH = 500


@dataclass(frozen=True)
class Workload:
    """What a model is loaded for.

    Attributes:
        length: Tokens of the longest request, those to be generated included.
        requests: Most requests at once.
        batch_tokens: Most tokens that go through the model at once.
    """

    length: int
    requests: int
    batch_tokens: int


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


def engine_options(workload: Workload, dtype: str, cache: int, params: ServingParams) -> dict[str, Any]:
    """VLLM's engine arguments: whatever it would choose by itself and could change a figure is fixed."""
    return {
        "dtype": dtype,
        "seed": 0,
        "max_model_len": workload.length,
        "max_num_seqs": workload.requests,
        "max_num_batched_tokens": max(workload.batch_tokens, workload.length),
        "max_logprobs": TOP,
        "kv_cache_memory_bytes": cache,
        # With it, a prompt that was seen before would cost nothing.
        "enable_prefix_caching": False,
        # On a CPU compiling takes minutes; on a GPU speed without it is not that of what one deploys.
        "enforce_eager": params.device == "cpu",
        "generation_config": "vllm",  # greedy means greedy, whatever the model's folder recommends
        "disable_log_stats": True,
    }


def engine_variables(params: ServingParams, environment: Environment) -> dict[str, str]:
    """Environment variables that vLLM is run with."""
    threads = str(params.threads)
    scripts = environment.folder / "bin"
    return {
        "PATH": f"{scripts}:{worker_environment().get('PATH', '')}",  # it calls ninja by name
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process: it dies at once, and its memory is all there is
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",  # a window may fill the model's context, and a token follows
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # two processes take turns on the same cores
        "VLLM_CPU_INT4_W4A8": INT8_ACTIVATIONS,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
    }


def text_config(folder: Path) -> dict[str, Any]:
    """The model's config.json, of a model with several parts that of the language model."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    text: dict[str, Any] = config.get("text_config") or config
    return text


def cache_bytes(config: Mapping[str, Any], workload: Workload, dtype: str) -> int:
    """Size of a key-value cache in which all requests find room at once.

    Args:
        config: As `text_config` gives it.
        workload: Requests and their lengths.
        dtype: What keys and values are kept in.
    """
    heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    size = 4 if dtype == "float32" else 2
    blocks = -(-workload.length // BLOCK_TOKENS) + 1
    tokens = workload.requests * blocks * BLOCK_TOKENS
    needed = int(2 * config["num_hidden_layers"] * heads * width * size * tokens)
    return max(SMALLEST_CACHE, round(CACHE_SLACK * needed))


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
