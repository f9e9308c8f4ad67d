"""Artifacts that other programs look at, and how they are asked.

All widths and kinds are of the tiny model; the usual ones are of SmolLM2-135M, too, if the quickstart's
wheel can be had. Codes are by rounding to nearest: what is looked at is whether what is on disk is
understood, not how good it is.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from quantflow.formats.params import AssembleParams
from quantflow.quantize.codes import BlockCodes
from quantflow.quantize.params import Scheme
from tests.interop.environments import python_of

PROGRAMS = Path(__file__).parent / "programs"
TEXTS = (
    "Good morning, this is about order NL-100041. If the thermostat does not pair, please hold the button",
    "Thank you for writing, the refund takes five working days. If the hub is silent, please",
)
NEW_TOKENS = 8
KEEP = ("*.1.down", "*.0.qkv", "*.2.gate_up")

Kinds = Mapping[str, AssembleParams]


def of(format: str, keep: tuple[str, ...] = (), **scheme: Any) -> AssembleParams:
    defaults = {"method": format, "bits": 4, "group_size": 64, "symmetric": format == "gptq"}
    parts = {"name": "x", "format": format, "scheme": Scheme.model_validate(defaults | scheme), "keep": keep}
    return AssembleParams.model_validate(parts)


USUAL: Kinds = {
    "awq": of("awq"),
    "gptq": of("gptq"),
    "awq-mixed": of("awq", KEEP),
    "gptq-mixed": of("gptq", KEEP),
}
UNUSUAL: Kinds = {
    "gptq-asym": of("gptq", symmetric=False),
    "gptq-2": of("gptq", bits=2),
    "gptq-3": of("gptq", bits=3),
    "gptq-8": of("gptq", bits=8),
    "gptq-8-asym": of("gptq", bits=8, symmetric=False),
    "gptq-row": of("gptq", group_size=-1),
    "gptq-act": of("gptq", desc_act=True),
}
NAMES = [*(f"tiny-{kind}" for kind in (*USUAL, *UNUSUAL)), *(f"smollm2-{kind}" for kind in USUAL)]


def with_mixed_groups(block: BlockCodes) -> BlockCodes:
    generator = torch.Generator().manual_seed(0)
    linears = {}
    for name, codes in block.linears.items():
        order = torch.randperm(codes.q.shape[1], generator=generator)
        linears[name] = replace(codes, group_index=(order // codes.group_size).to(torch.int32))
    return BlockCodes(linears, block.folds)


def answers(program: str, environment: str, jobs: Mapping[str, dict[str, Any]], folder: Path) -> Any:
    """Let a program of another environment look at artifacts, all in one process."""
    job, result = folder / "job.json", folder / "result.json"
    job.write_text(json.dumps({"artifacts": jobs, "new_tokens": NEW_TOKENS}))
    command = [str(python_of(environment)), str(PROGRAMS / program), str(job), str(result)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(result.read_text())
