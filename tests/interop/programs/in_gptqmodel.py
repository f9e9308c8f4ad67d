"""What transformers with GPTQModel, and GPTQModel alone, make of artifacts. Imports nothing of QuantFlow."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gptqmodel
import torch
from gptqmodel import BACKEND, GPTQModel
from transformers import AutoModelForCausalLM

# Its own default asks for more workers than a machine of two cores has.
gptqmodel._default_cpu_workers = lambda: 2
COMPUTES_IN = {"TorchAtenAwqLinear": "bfloat16"}
"""Kernels that compute in another type than their model has. This one is torch's own for packed int4, which
takes scales and zero points in bfloat16: a layer of the float16 model came out 0.3 % off, where rounding to
bfloat16 costs 0.16 % and to float16 0.03 %."""


def load(folder: str, loader: str) -> Any:
    """The model, by `AutoModelForCausalLM` or by `GPTQModel.load`."""
    if loader == "transformers":
        return AutoModelForCausalLM.from_pretrained(folder)
    return GPTQModel.load(folder, backend=BACKEND.GPTQ_TORCH, device="cpu").model


@torch.no_grad()
def said(artifact: Mapping[str, Any], new_tokens: int) -> dict[str, Any]:
    """Log-probabilities of every token that came, and greedy continuations; or why there are none."""
    try:
        model = load(artifact["folder"], artifact["loader"])
        targets, greedy = [], []
        for ids in artifact["ids"]:
            row = torch.tensor([ids])
            log_p = model(input_ids=row).logits[0, :-1].float().log_softmax(-1)
            targets.append(log_p.gather(-1, row[0, 1:, None]).squeeze(-1).tolist())
            whole = model.generate(input_ids=row, max_new_tokens=new_tokens, do_sample=False)
            greedy.append(whole[0, len(ids) :].tolist())
        kernels = {type(module).__name__ for module in model.modules()} & COMPUTES_IN.keys()
        dtype = COMPUTES_IN[kernels.pop()] if kernels else str(model.dtype).removeprefix("torch.")
        return {"targets": targets, "greedy": greedy, "dtype": dtype}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    results = {name: said(artifact, job["new_tokens"]) for name, artifact in job["artifacts"].items()}
    Path(sys.argv[2]).write_text(json.dumps(results))
