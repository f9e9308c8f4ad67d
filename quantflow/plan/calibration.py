"""How fast this machine does what stages are made of. Run as a program; prints one JSON object.

It is the one part of planning that imports torch, which is why it runs in a process of its own.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

BEGUN = time.process_time()

import torch  # noqa: E402
from transformers import AutoModelForCausalLM, LlamaConfig  # noqa: E402

from quantflow.formats.awq import linear_codes, linear_tensors  # noqa: E402
from quantflow.measure.batches import LOGITS_BYTES  # noqa: E402
from quantflow.measure.divergence import kl_divergence, likeliest, token_nll  # noqa: E402
from quantflow.model.safetensors_file import TensorSpec, write_safetensors  # noqa: E402
from quantflow.plan.speed import MATMUL_WIDTHS  # noqa: E402
from quantflow.quantize.codes import LinearCodes, dequantize  # noqa: E402
from quantflow.quantize.grid import GridKind, fit_grid, round_to_grid  # noqa: E402

IMPORTED = time.process_time()

# Seconds that one kind of work is repeated for. Its fastest repetition counts, which is the one that other
# programs disturbed least.
BUDGET = 0.12
BUDGET_LARGEST_MATMUL = 0.3
# A weight and a piece of logits of the size that stages handle: larger than a core's cache.
ROWS, COLUMNS, GROUP = 1024, 1024, 64
POSITIONS, VOCABULARY = LOGITS_BYTES // (4 * 32_768), 32_768
BATCH, HEADS, LENGTH, HEAD_DIM = 2, 8, 512, 64
# glibc gives back to the system at once what is larger than the largest block that it has seen freed, up to
# 32 MiB.
LARGEST_HEAP_BLOCK = 31 << 20
FRESH_BYTES = 64 << 20
FILE_BYTES = 32 << 20


def main(device: str, folder: Path) -> None:
    """Measure and print.

    Args:
        device: `cpu` or `cuda`.
        folder: On the disk that a run would write to.
    """
    torch.manual_seed(0)
    torch.empty(LARGEST_HEAP_BLOCK, dtype=torch.uint8)  # as any stage has done when its work begins
    speed = Stopwatch(device)
    with torch.no_grad():
        rates = {f"matmul-{width}": _matmul(speed, device, width) for width in MATMUL_WIDTHS[device]}
        rates["bf16"] = _bf16(speed, device)
        rates |= _tensors(speed, device) | _codes(speed) | _logits(speed, device)
    rates |= _disk(speed, folder) | {"block": _model(speed)}
    print(json.dumps({"imports": IMPORTED - BEGUN, "rates": rates}))


class Stopwatch:
    """Times repetitions on a device, which may work behind the program's back."""

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        # The time that this thread computed: it does its share of every operation and is not charged for the
        # time that other programs kept it from a core.
        self._clock = time.perf_counter if self._cuda else time.thread_time

    def fastest(self, work: Callable[[], object], budget: float = BUDGET) -> float:
        """Seconds of the fastest repetition of `work`; the first warms up and does not count."""
        work()
        begun, best = time.perf_counter(), float("inf")
        while best == float("inf") or time.perf_counter() - begun < budget:
            self._settle()
            at = self._clock()
            work()
            self._settle()
            best = min(best, self._clock() - at)
        return best

    def _settle(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()


def _matmul(speed: Stopwatch, device: str, width: int) -> float:
    a, b = (torch.randn(width, width, device=device) for _ in range(2))
    budget = BUDGET_LARGEST_MATMUL if width == MATMUL_WIDTHS[device][-1] else BUDGET
    return 2 * width**3 / speed.fastest(lambda: a @ b, budget)


def _bf16(speed: Stopwatch, device: str) -> float:
    width = MATMUL_WIDTHS[device][-1]
    a, b = (torch.randn(width, width, device=device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * width**3 / speed.fastest(lambda: torch.nn.functional.linear(a, b), BUDGET_LARGEST_MATMUL)


def _tensors(speed: Stopwatch, device: str) -> dict[str, float]:
    weight = torch.randn(ROWS, COLUMNS, device=device)
    groups = weight.reshape(ROWS, -1, GROUP)
    half = weight.half()
    small = torch.randn(8, 8, device=device)
    heads = torch.randn(BATCH, HEADS, LENGTH, HEAD_DIM, device=device)
    attend = torch.nn.functional.scaled_dot_product_attention
    size = weight.numel()

    def fresh() -> None:
        torch.empty(FRESH_BYTES // 4, device=device).zero_()

    return {
        "elementwise": 2 * size / speed.fastest(lambda: torch.nn.functional.silu(weight) * weight),
        "fresh": FRESH_BYTES / speed.fastest(fresh),
        "rounding": size / speed.fastest(lambda: round_to_grid(groups, fit_grid(groups, GridKind(4)))),
        "converting": size / speed.fastest(half.float),
        "call": 1 / speed.fastest(lambda: small + small),
        "attention": 4
        * BATCH
        * HEADS
        * LENGTH**2
        * HEAD_DIM
        / speed.fastest(lambda: attend(heads, heads, heads, is_causal=True)),
    }


def _codes(speed: Stopwatch) -> dict[str, float]:
    """To AWQ's layout and back; that is done in main memory whatever the device."""
    groups = (ROWS, COLUMNS // GROUP)
    codes = LinearCodes(
        q=torch.randint(16, (ROWS, COLUMNS), dtype=torch.uint8),
        scales=torch.rand(groups).half(),
        zero_points=torch.randint(16, groups, dtype=torch.uint8),
        bits=4,
        group_size=GROUP,
    )
    parts = linear_tensors("", codes)
    size = ROWS * COLUMNS
    return {
        "packing": size / speed.fastest(lambda: linear_tensors("", codes)),
        "unpacking": size / speed.fastest(lambda: dequantize(linear_codes(parts, 4, GROUP))),
    }


def _logits(speed: Stopwatch, device: str) -> dict[str, float]:
    logits = torch.randn(POSITIONS, VOCABULARY, device=device)
    other = torch.randn(POSITIONS, VOCABULARY, device=device)
    targets = torch.zeros(POSITIONS, dtype=torch.int64, device=device)

    def alone() -> None:
        torch.isfinite(logits).all(-1)
        token_nll(logits.log_softmax(-1), targets)

    def beside() -> None:
        torch.isfinite(logits).all(-1)
        log_p, log_q = other.log_softmax(-1), logits.log_softmax(-1)
        token_nll(log_q, targets)
        kl_divergence(log_p, log_q)
        likeliest(log_p, log_q)

    size = logits.numel()
    return {"scoring": size / speed.fastest(alone), "comparing": size / speed.fastest(beside)}


def _disk(speed: Stopwatch, workspace: Path) -> dict[str, float]:
    content = torch.randint(256, (FILE_BYTES,), dtype=torch.uint8)
    spec = TensorSpec("content", torch.uint8, (FILE_BYTES,))
    place = workspace if os.access(workspace, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="speed-") as folder:
        path = Path(folder) / "speed.safetensors"
        written = speed.fastest(lambda: write_safetensors(path, [spec], [("content", content)], {}))
        read = speed.fastest(path.read_bytes)
    data = content.numpy().tobytes()
    return {
        "writing": FILE_BYTES / written,
        "reading": FILE_BYTES / read,
        "hashing": FILE_BYTES / speed.fastest(lambda: sha256(data)),
    }


def _model(speed: Stopwatch) -> float:
    """Blocks of an empty model made in a second."""
    from accelerate import init_empty_weights

    blocks = 8
    config = LlamaConfig(num_hidden_layers=blocks)
    build: Callable[..., object] = AutoModelForCausalLM.from_config

    def make() -> None:
        with init_empty_weights(include_buffers=False):
            build(config)

    return blocks / speed.fastest(make)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
