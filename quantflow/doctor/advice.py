"""What the hardware means for INT8, INT4 and bf16, in plain sentences."""

from collections.abc import Iterator

from quantflow.hardware.gpu import Gpu
from quantflow.hardware.processor import Processor

# Names of instruction sets as the kernel lists them → as people know them.
INT8_SETS = {
    "avx512_vnni": "AVX-512 VNNI",
    "avx_vnni": "AVX-VNNI",
    "amx_int8": "AMX INT8",
    "asimddp": "dot product",
    "i8mm": "I8MM",
}
BF16_SETS = {"avx512_bf16": "AVX-512 BF16", "amx_bf16": "AMX BF16", "bf16": "BF16"}
VECTOR_SETS = {"avx2": "AVX2", "avx512f": "AVX-512", "asimd": "NEON", "sve": "SVE"}
# Compute capabilities from which on vLLM has kernels for AWQ, and from which on tensor cores compute in bf16.
AWQ_CAPABILITY, BF16_CAPABILITY = (7, 5), (8, 0)


def instruction_sets(processor: Processor) -> list[str]:
    """Those that decide anything here, as people know them."""
    known = {**VECTOR_SETS, **INT8_SETS, **BF16_SETS}
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
    fast = [name for flag, name in BF16_SETS.items() if flag in processor.flags]
    gated = "What the gate judges is computed in float32 everywhere."
    if gpu is not None and gpu.capability >= BF16_CAPABILITY:
        return f"The GPU computes in bf16. {gated}"
    if fast:
        names = ", ".join(fast)
        return f"This processor computes in bf16 ({names}), at about twice the speed of float32. {gated}"
    return f"Nothing here computes in bf16: it would be emulated, slower than float32. {gated}"


def _dotted(gpu: Gpu) -> str:
    return ".".join(map(str, gpu.capability))
