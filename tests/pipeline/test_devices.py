"""Device and calibration dtype are decided in one place, from what the machine has and the recipe pins."""

from typing import Literal

import pytest

from quantflow.errors import RecipeError
from quantflow.hardware.gpu import Gpu, Gpus
from quantflow.pipeline import machine as machine_module
from quantflow.pipeline.devices import decide
from quantflow.pipeline.machine import Machine, find_machine

Device = Literal["cpu", "cuda"]


def machine(device: Device, *sets: str, capability: tuple[int, int] | None = None) -> Machine:
    return Machine(device=device, architecture="x86_64", instruction_sets=sets, capability=capability)


@pytest.mark.parametrize(
    ("of", "dtype", "because"),
    [
        (machine("cpu", "avx2"), "float32", "no bf16 instructions"),
        (machine("cpu", "avx2", "avx512f", "avx512_vnni"), "float32", "no bf16 instructions"),
        (machine("cpu", "avx2", "avx512_bf16"), "bfloat16", "AVX-512 BF16"),
        (machine("cpu", "avx2", "avx512_bf16", "amx_bf16"), "bfloat16", "AVX-512 BF16 and AMX BF16"),
        (machine("cuda", "avx2", capability=(8, 0)), "bfloat16", "compute capability 8.0"),
        (machine("cuda", "avx2", capability=(9, 0)), "bfloat16", "compute capability 9.0"),
        (machine("cuda", "avx512_bf16", capability=(7, 5)), "float32", "7.5, and bf16 begins with 8.0"),
        (machine("cuda", "avx512_bf16"), "float32", "does not tell"),
    ],
)
def test_auto_takes_bfloat16_where_the_device_multiplies_it_itself(
    of: Machine, dtype: str, because: str
) -> None:
    found = decide("auto", of)
    assert (found.device, found.calibration_dtype) == (of.device, dtype)
    assert because in str(found)


@pytest.mark.parametrize("of", [machine("cpu"), machine("cpu", "amx_bf16"), machine("cuda")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_pinned_dtype_is_taken_on_every_machine(of: Machine, dtype: Literal["float32", "bfloat16"]) -> None:
    found = decide(dtype, of)
    assert found.calibration_dtype == dtype
    assert "runtime.calibration_dtype" in found.because


def test_a_pinned_bfloat16_that_has_to_be_emulated_says_so() -> None:
    assert "emulated" in decide("bfloat16", machine("cpu", "avx2")).because
    assert "emulated" not in decide("bfloat16", machine("cpu", "amx_bf16")).because
    assert "emulated" not in decide("float32", machine("cpu", "avx2")).because


@pytest.mark.parametrize("asked", ["auto", "float32", "bfloat16"])
@pytest.mark.parametrize("of", [machine("cpu", "amx_bf16"), machine("cuda", capability=(9, 0))])
def test_what_is_gated_is_computed_in_float32_whatever_calibrates(
    of: Machine, asked: Literal["auto", "float32", "bfloat16"]
) -> None:
    assert decide(asked, of).measuring_dtype == "float32"


def test_a_gpu_is_known_by_name_and_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = Gpus("599.01", (Gpu("Example H", 80 << 30, 70 << 30, (9, 0)),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine_module, "cuda_usable", lambda: True)
    monkeypatch.setattr(machine_module, "find_gpus", lambda: gpus)
    found = find_machine("auto")
    assert (found.device, found.gpu, found.capability) == ("cuda", "Example H", (9, 0))
    on_cpu = find_machine("cpu")  # that there is a GPU changes nothing of what the processor computes
    assert (on_cpu.device, on_cpu.gpu, on_cpu.capability) == ("cpu", None, None)


def test_a_gpu_that_is_asked_for_and_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "cuda_usable", lambda: False)
    with pytest.raises(RecipeError, match="no usable CUDA device"):
        find_machine("cuda")
    assert find_machine("auto").device == "cpu"
