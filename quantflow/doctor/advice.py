"""What the hardware means for INT8, INT4 and bf16, in plain sentences."""

from collections.abc import Iterator
from typing import Literal

from quantflow.hardware.gpu import Gpu
from quantflow.hardware.processor import Processor
from quantflow.pipeline.devices import BF16_SETS, native_bf16

# Names of instruction sets as the kernel lists them → as people know them.
INT8_SETS = {
    "avx512_vnni": "AVX-512 VNNI",
    "avx_vnni": "AVX-VNNI",
    "amx_int8": "AMX INT8",
    "asimddp": "dot product",
    "i8mm": "I8MM",
}
VECTOR_SETS = {"avx2": "AVX2", "avx512f": "AVX-512", "asimd": "NEON", "sve": "SVE"}
# Not gone by in computing: whether torch is faster with it has not been tried.
ARM_BF16_SETS = {"bf16": "BF16"}
# Compute capability from which on vLLM has kernels for AWQ.
AWQ_CAPABILITY = (7, 5)


def instruction_sets(processor: Processor) -> list[str]:
    """Those that decide anything here, as people know them."""
    known = {**VECTOR_SETS, **INT8_SETS, **BF16_SETS, **ARM_BF16_SETS}
    return [name for flag, name in known.items() if flag in processor.flags]


def advise(processor: Processor, gpu: Gpu | None) -> Iterator[tuple[str, str]]:
    """Topic and sentence.

    Args:
        processor: Of this machine.
        gpu: The GPU that torch would compute on; None without one.
    """
    yield "INT8", _int8(processor)
    yield "INT4", _int4(gpu)
    yield "bf16", _bf16(processor, gpu)


def _int8(processor: Processor) -> str:
    fast = [name for flag, name in INT8_SETS.items() if flag in processor.flags]
    if fast:
        return (
            f"This processor multiplies 8-bit integers in one step ({', '.join(fast)}): INT8 models run "
            "faster here than in float32, and their sums do not overflow."
        )
    if processor.architecture in ("x86_64", "AMD64"):
        return (
            "This processor has no VNNI and no AMX: it adds pairs of 8-bit products in 16 bits, which "
            "overflow with full-range weights. INT8 models need a reduced weight range here and gain little "
            "speed; a verdict reached here does not hold for processors with VNNI, nor theirs here."
        )
    return "This processor has no instructions for 8-bit products: INT8 models save memory here, not time."


def _int4(gpu: Gpu | None) -> str:
    measured = "INT4 artifacts are made and measured on any machine: weights are expanded block by block."
    if gpu is None:
        return f"{measured} Without a GPU that is all; they are served fast by GPUs."
    if gpu.capability >= AWQ_CAPABILITY:
        return (
            f"{measured} This GPU (compute capability {_dotted(gpu)}) also serves them, for example in vLLM."
        )
    return (
        f"{measured} This GPU (compute capability {_dotted(gpu)}) is older than vLLM's INT4 kernels, which "
        f"want {'.'.join(map(str, AWQ_CAPABILITY))}."
    )


def _bf16(processor: Processor, gpu: Gpu | None) -> str:
    device: Literal["cpu", "cuda"] = "cuda" if gpu is not None else "cpu"
    native, known_by = native_bf16(device, processor.flags, gpu.capability if gpu is not None else None)
    dtype = "bfloat16" if native else "float32"
    return f"Calibration in {dtype}: {known_by}. What the gate judges is computed in float32 everywhere."


def _dotted(gpu: Gpu) -> str:
    return ".".join(map(str, gpu.capability))
