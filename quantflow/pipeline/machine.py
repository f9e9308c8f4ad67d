"""Which device computes, and what of the machine can change a figure; found without importing torch."""

import ctypes
import platform
from functools import cache
from importlib.metadata import version
from typing import Literal

from pydantic import BaseModel, ConfigDict

from quantflow.errors import RecipeError
from quantflow.hardware.gpu import find_gpus, first_visible
from quantflow.hardware.processor import find_processor

# Those that the libraries choose their kernels by; the last bits of results may differ between them.
INSTRUCTION_SETS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8", "amx_bf16")


class Machine(BaseModel):
    """Where a run computes.

    Attributes:
        device: `cpu` or `cuda`.
        architecture: Processor family, e.g. `x86_64`.
        instruction_sets: Those of `INSTRUCTION_SETS` that the processor has.
        gpu: Name of the GPU that computes; None on a CPU, or where the driver does not tell.
        capability: Its CUDA compute capability, e.g. (9, 0).
    """

    model_config = ConfigDict(frozen=True)

    device: Literal["cpu", "cuda"]
    architecture: str
    instruction_sets: tuple[str, ...]
    gpu: str | None = None
    capability: tuple[int, int] | None = None


def find_machine(device: Literal["auto", "cpu", "cuda"]) -> Machine:
    """Resolve the recipe's `runtime.device`.

    Raises:
        RecipeError: `cuda` is asked for and there is none, or torch is built without it.
    """
    if device == "cuda" and not cuda_usable():
        raise RecipeError(
            "no usable CUDA device here",
            where="runtime.device",
            hint="use `device: auto` or `cpu`, or install a CUDA build of torch and a driver",
        )
    chosen: Literal["cpu", "cuda"] = "cpu" if device == "cpu" or not cuda_usable() else "cuda"
    gpu = first_visible(find_gpus()) if chosen == "cuda" else None
    return Machine(
        device=chosen,
        architecture=platform.machine(),
        instruction_sets=_processor_instruction_sets(),
        gpu=gpu.name if gpu else None,
        capability=gpu.capability if gpu else None,
    )


@cache
def cuda_usable() -> bool:
    """Whether torch is built for CUDA and the driver reports at least one device."""
    if "+cpu" in version("torch"):
        return False
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def _processor_instruction_sets() -> tuple[str, ...]:
    flags = find_processor().flags
    return tuple(name for name in INSTRUCTION_SETS if name in flags)
