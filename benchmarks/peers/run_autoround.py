"""Quantizes the benchmark's model with auto-round; runs in an environment of that tool's own.

    python run_autoround.py MODEL CALIBRATION DTYPE OUTPUT autoround

Everything that is not the same for all tools (groups, bits, tokens) is auto-round's default: symmetric, 200
steps a block.
"""

import json
import sys
from pathlib import Path

import torch
from auto_round import AutoRound
from clock import measured
from transformers import AutoModelForCausalLM, AutoTokenizer

GROUP_SIZE = 64
BATCH = 8
"""Windows in a step, as by default."""


def main() -> None:
    """Quantize and save."""
    folder, calibration, dtype, output, method = sys.argv[1:]
    saved = Path(output) / "saved"
    with measured():
        ids = torch.tensor(json.loads(Path(calibration).read_text()))
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        rounding = AutoRound(
            model,
            AutoTokenizer.from_pretrained(folder),
            bits=4,
            group_size=GROUP_SIZE,
            sym=True,
            dataset=list(ids.split(BATCH)),
            seqlen=ids.shape[1],
            nsamples=len(ids),
            batch_size=BATCH,
            device_map="cpu",
        )
        rounding.quantize_and_save(str(saved), format="auto_gptq")
    (artifact,) = saved.iterdir()  # in a folder that it names after the bits
    artifact.rename(Path(output) / method)


if __name__ == "__main__":
    main()
