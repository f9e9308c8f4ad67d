"""What vLLM is started with: whatever it would choose by itself and could change a figure is fixed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quantflow.runtime.environment import Environment, worker_environment
from quantflow.runtime.params import ServingParams

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
