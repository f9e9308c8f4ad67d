"""Which device computes and in what: decided here and nowhere else, before anything runs, without torch.

What the gate judges is computed in float32 on every device. Calibration only has to see what the activations
are like, so that its matrix products may be in bfloat16 where the hardware has that; sums over them, and all
that chooses codes, stay float32. Nothing is computed in float16: CPUs emulate it, many times slower.
"""

from collections.abc import Collection
from typing import Literal

from pydantic import BaseModel, ConfigDict

from quantflow.pipeline.machine import Machine

CalibrationDtype = Literal["float32", "bfloat16"]
# Instruction sets in the kernel's spelling, as people know them, by which torch multiplies bf16 on a CPU.
BF16_SETS = {"avx512_bf16": "AVX-512 BF16", "amx_bf16": "AMX BF16"}
# Compute capability from which on tensor cores multiply bf16.
BF16_CAPABILITY = (8, 0)


class Computing(BaseModel):
    """What a run computes on and in.

    Attributes:
        device: `cpu` or `cuda`.
        calibration_dtype: What the products of the calibration forward are computed in.
        measuring_dtype: What everything is computed in that a gate sees.
        because: Why that calibration dtype, a phrase.
    """

    model_config = ConfigDict(frozen=True)

    device: Literal["cpu", "cuda"]
    calibration_dtype: CalibrationDtype
    measuring_dtype: Literal["float32"] = "float32"
    because: str

    def __str__(self) -> str:
        """As a phrase, e.g. `calibration in float32: this CPU has no bf16 instructions`."""
        return f"calibration in {self.calibration_dtype}: {self.because}"


def decide(asked: Literal["auto", "float32", "bfloat16"], machine: Machine) -> Computing:
    """Decide what a run on a machine computes in.

    Args:
        asked: The recipe's `runtime.calibration_dtype`.
        machine: Where it runs, its device resolved.
    """
    native, reason = native_bf16(machine.device, machine.instruction_sets, machine.capability)
    if asked == "auto":
        dtype: CalibrationDtype = "bfloat16" if native else "float32"
        return Computing(device=machine.device, calibration_dtype=dtype, because=reason)
    pinned = "the recipe's runtime.calibration_dtype says so"
    if asked == "bfloat16" and not native:
        pinned += f"; {reason}: it is emulated, slower than float32"
    return Computing(device=machine.device, calibration_dtype=asked, because=pinned)


def native_bf16(
    device: Literal["cpu", "cuda"], flags: Collection[str], capability: tuple[int, int] | None
) -> tuple[bool, str]:
    """Whether a device multiplies bf16 itself, and what that is known by, as a phrase.

    Args:
        device: `cpu` or `cuda`.
        flags: Features of the processor, in the kernel's spelling.
        capability: Compute capability of the GPU; None where the driver does not tell it.
    """
    if device == "cpu":
        names = [name for flag, name in BF16_SETS.items() if flag in flags]
        return bool(names), f"this CPU has {' and '.join(names) or 'no bf16 instructions'}"
    if capability is None:
        return False, "the driver does not tell this GPU's compute capability"
    known = f"this GPU has compute capability {'.'.join(map(str, capability))}"
    if capability >= BF16_CAPABILITY:
        return True, known
    return False, f"{known}, and bf16 begins with {'.'.join(map(str, BF16_CAPABILITY))}"
