"""The driver's library is played by an object with its functions; there is no GPU where tests run."""

import ctypes
from typing import Any

import pytest

from quantflow.hardware.gpu import Gpu, Gpus, ask, first_visible

BIG, SMALL = Gpu("Example H", 80 << 30, 70 << 30, (9, 0)), Gpu("Example T", 16 << 30, 15 << 30, (7, 5))


class Library:
    def __init__(self, *devices: Gpu, broken: int = 0) -> None:
        self.devices = devices
        self.broken = broken
        self.shut = False

    def nvmlInit_v2(self) -> int:
        return self.broken

    def nvmlShutdown(self) -> int:
        self.shut = True
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, size: int) -> int:
        text.value = b"599.01"
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.devices)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        handle._obj.value = index + 1
        return 0

    def nvmlDeviceGetName(self, handle: ctypes.c_void_p, text: Any, size: int) -> int:
        text.value = self._device(handle).name.encode()
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: ctypes.c_void_p, memory: Any) -> int:
        memory._obj.total, memory._obj.free = self._device(handle).memory, self._device(handle).free
        return 0

    def nvmlDeviceGetCudaComputeCapability(self, handle: ctypes.c_void_p, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = self._device(handle).capability
        return 0

    def _device(self, handle: ctypes.c_void_p) -> Gpu:
        return self.devices[(handle.value or 0) - 1]


def test_all_gpus_are_told_with_driver_memory_and_capability() -> None:
    library = Library(BIG, SMALL)
    assert ask(library) == Gpus("599.01", (BIG, SMALL))
    assert library.shut


def test_a_driver_that_does_not_answer_has_no_gpus() -> None:
    assert ask(Library(BIG, broken=9)) == Gpus("", ())


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, BIG), ("1,0", SMALL), ("GPU-0123", BIG), ("7", None)]
)
def test_the_first_visible_gpu_computes(
    visible: str | None, expected: Gpu | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert first_visible(Gpus("599.01", (BIG, SMALL))) == expected
