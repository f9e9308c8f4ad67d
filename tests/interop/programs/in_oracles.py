"""What the tools that the layouts come from read out of artifacts. Imports nothing of QuantFlow.

Archived, they do not import beside today's transformers; the two modules that define the layouts do.
"""

import json
import sys
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

DISTRIBUTIONS = {"awq": "autoawq", "auto_gptq": "auto-gptq"}


def module_of(package: str, name: str) -> Any:
    """A module of a package whose own `__init__` is not run."""
    parts = [package, *name.split(".")]
    for depth in range(1, len(parts)):
        path = ".".join(parts[:depth])
        stub = ModuleType(path)
        stub.__path__ = [str(distribution(DISTRIBUTIONS[package]).locate_file("/".join(parts[:depth])))]
        sys.modules.setdefault(path, stub)
    return import_module(".".join(parts))


def awq_weight(parts: dict[str, Tensor], settings: dict[str, Any]) -> Tensor:
    """AutoAWQ's `dequantize_gemm`: float16 `[out, in]`."""
    packing = module_of("awq", "utils.packing_utils")
    weight: Tensor = packing.dequantize_gemm(
        parts["qweight"], parts["qzeros"], parts["scales"], settings["bits"], settings["group_size"]
    )
    return weight.T


def gptq_weight(parts: dict[str, Tensor], settings: dict[str, Any]) -> Tensor:
    """What AutoGPTQ's `QuantLinear` multiplies with: float32 `[out, in]`."""
    linears = module_of("auto_gptq", "nn_modules.qlinear.qlinear_cuda")
    inputs, outputs = len(parts["g_idx"]), parts["scales"].shape[1]
    layer = linears.QuantLinear(settings["bits"], settings["group_size"], inputs, outputs, bias=False)
    layer.load_state_dict(parts)
    layer.scales = layer.scales.float()  # it computes in the scales' type, and float16 is not exact
    with torch.no_grad():
        weight: Tensor = layer(torch.eye(inputs)).T
    return weight


def weights(folder: Path) -> dict[str, Tensor]:
    """Every quantized linear's weight by the linear's name."""
    settings = json.loads((folder / "config.json").read_text())["quantization_config"]
    tensors = load_file(folder / "model.safetensors")
    read = awq_weight if settings["quant_method"] == "awq" else gptq_weight
    found = {}
    for name in tensors:
        linear, _, part = name.rpartition(".")
        if part == "qweight":
            own = {key.rpartition(".")[2]: t for key, t in tensors.items() if key.startswith(f"{linear}.")}
            own.pop("bias", None)
            found[linear] = read(own, settings).contiguous()
    return found


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    results = {}
    for artifact_name, artifact in job["artifacts"].items():
        path = Path(sys.argv[2]).with_name(f"{artifact_name}.safetensors")
        save_file(weights(Path(artifact["folder"])), path)
        results[artifact_name] = {"weights": str(path)}
    Path(sys.argv[2]).write_text(json.dumps(results))
