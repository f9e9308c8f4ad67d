"""NVIDIA GPUs as the driver's own management library reports them, without torch."""

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_NAME_BYTES = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE
_VERSION_BYTES = 80  # NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    Attributes:
        name: As its maker calls it.
        memory: Its memory, bytes.
        free: What nobody holds of it now, bytes.
        capability: CUDA compute capability, e.g. (9, 0).
    """

    name: str
    memory: int
    free: int
    capability: tuple[int, int]


@dataclass(frozen=True)
class Gpus:
    """What the driver says.

    Attributes:
        driver: Version of the driver; empty where there is none.
        devices: GPUs in the driver's order; all of them, whatever CUDA_VISIBLE_DEVICES says.
    """

    driver: str
    devices: tuple[Gpu, ...]


class _MemoryInfo(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


@cache
def find_gpus() -> Gpus:
    """GPUs of this machine; none where there is no driver or it does not answer."""
    try:
        library: Any = ctypes.CDLL(LIBRARY)
    except OSError:
        return Gpus("", ())
    return ask(library)


def ask(library: Any) -> Gpus:
    """Ask a loaded management library.

    Args:
        library: With the functions of NVML (https://docs.nvidia.com/deploy/nvml-api).
    """
    if library.nvmlInit_v2() != 0:
        return Gpus("", ())
    try:
        version = ctypes.create_string_buffer(_VERSION_BYTES)
        library.nvmlSystemGetDriverVersion(version, _VERSION_BYTES)
        count = ctypes.c_uint()
        library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        devices = tuple(_ask_device(library, index) for index in range(count.value))
        return Gpus(version.value.decode(errors="replace"), tuple(d for d in devices if d is not None))
    finally:
        library.nvmlShutdown()


def _ask_device(library: Any, index: int) -> Gpu | None:
    handle, memory = ctypes.c_void_p(), _MemoryInfo()
    if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
        return None
    name = ctypes.create_string_buffer(_NAME_BYTES)
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvmlDeviceGetName(handle, name, _NAME_BYTES)
    library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    library.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
    return Gpu(name.value.decode(errors="replace"), memory.total, memory.free, (major.value, minor.value))


def first_visible(gpus: Gpus) -> Gpu | None:
    """The GPU that torch computes on: the first that CUDA_VISIBLE_DEVICES lets it see.

    A GPU named there by its UUID, not its number, is taken for the first of all.
    """
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0].strip()
    index = int(first) if first.isdigit() else 0
    return gpus.devices[index] if index < len(gpus.devices) else None
