"""Quantizes the benchmark's model with GPTQModel; runs in an environment of that tool's own.

    python run_gptqmodel.py MODEL CALIBRATION DTYPE OUTPUT {gptq,awq}

Everything that is not the same for all tools (groups, bits, symmetry, tokens) is GPTQModel's default.
"""

import json
import os
import sys
from pathlib import Path

# With the one worker that it takes by default on two cores, it waits for itself for ever.
os.environ["GPTQMODEL_CPU_WORKERS"] = "2"

import torch
from clock import measured
from gptqmodel import BACKEND, GPTQModel, extension
from gptqmodel.quantization import METHOD, QuantizeConfig

GROUP_SIZE = 64


def main() -> None:
    """Quantize and save."""
    folder, calibration, dtype, output, method = sys.argv[1:]
    extension.load(name="pack_block_cpu")  # compiled on the first use ever, which no figure here is to hold
    with measured():
        ids = json.loads(Path(calibration).read_text())
        tokens = [{"input_ids": row, "attention_mask": [1] * len(row)} for row in ids]
        model = GPTQModel.load(folder, _config(method), dtype=getattr(torch, dtype), device="cpu")
        # Of AWQ's kernels, by which it packs, the one that it prefers needs an accelerator.
        model.quantize(tokens, backend=BACKEND.AWQ_TORCH if method == "awq" else BACKEND.AUTO)
        model.save(str(Path(output) / method))


def _config(method: str) -> QuantizeConfig:
    if method == "awq":
        return QuantizeConfig(method=METHOD.AWQ, format="gemm", bits=4, group_size=GROUP_SIZE, sym=False)
    return QuantizeConfig(bits=4, group_size=GROUP_SIZE, sym=method == "gptq")


if __name__ == "__main__":
    main()
