"""The worker with the one kernel that vLLM's AVX2 build lacks, written out in torch.

The wheel of 0.32.0 has `cpu_gemm_wna16`, the product with 4-bit weights, in its AVX-512 builds only. What
the test is after, whether vLLM reads our files as they are meant, happens before that kernel: loading,
fusing and repacking. The product here follows the layout that vLLM's repacking leaves
(`CPUWNA16LinearKernel`), blocks of 16 outputs, each [in, 16] in nibbles. It says nothing of the real
kernel's rounding or speed.
"""

import runpy
import sys
from pathlib import Path

import torch

WORKER = Path(__file__).parents[2] / "quantflow" / "runtime" / "vllm_worker.py"
BLOCK = 16  # outputs that the kernel's weights are grouped by
NIBBLES = 8  # in an int32
MIDDLE = 8  # the zero point of symmetric codes


def unpacked(words: torch.Tensor) -> torch.Tensor:
    """Nibbles of int32 words, lowest first: [..., n] → [..., 8 n]."""
    shifts = torch.arange(0, 32, 32 // NIBBLES, dtype=torch.int32)
    return ((words.unsqueeze(-1) >> shifts) & 0xF).flatten(-2)


def cpu_gemm_wna16(
    input: torch.Tensor,
    q_weight: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    bias: torch.Tensor | None,
    pack_factor: int,
    isa_hint: str,
) -> torch.Tensor:
    """The product of [tokens, in] with 4-bit weights → [tokens, out]."""
    width = input.shape[-1]
    codes = unpacked(q_weight.reshape(-1, width, BLOCK // NIBBLES)).permute(1, 0, 2).reshape(width, -1)
    group = torch.arange(width) // (width // scales.shape[0])
    zero = torch.tensor(MIDDLE) if zeros is None else unpacked(zeros)[group]
    weight = (codes - zero).float() * scales.float()[group]
    product = input.float() @ weight
    return (product if bias is None else product + bias.float()).to(input.dtype)


def main() -> None:
    """Supply the kernel where it is missing, and be the worker."""
    from vllm import _custom_ops
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    if not hasattr(torch.ops._C, "cpu_gemm_wna16"):
        print("cpu_gemm_wna16 is missing here and supplied by the test", file=sys.stderr)
        _custom_ops.cpu_gemm_wna16 = cpu_gemm_wna16
    runpy.run_path(str(WORKER), run_name="__main__")


if __name__ == "__main__":
    main()
