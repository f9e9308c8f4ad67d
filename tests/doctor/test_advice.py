"""What hardware means for number formats, in sentences that name what they go by."""

import pytest

from quantflow.doctor.advice import advise, instruction_sets
from quantflow.hardware.gpu import Gpu
from quantflow.hardware.processor import Processor

OLD_GPU, NEW_GPU = Gpu("Old", 8 << 30, 8 << 30, (6, 1)), Gpu("New", 80 << 30, 80 << 30, (9, 0))


def processor(*flags: str, architecture: str = "x86_64") -> Processor:
    return Processor("Example", architecture, 8, frozenset(flags))


def advice(of: Processor, gpu: Gpu | None = None) -> dict[str, str]:
    return dict(advise(of, gpu))


@pytest.mark.parametrize(
    ("flag", "name"), [("avx512_vnni", "AVX-512 VNNI"), ("avx_vnni", "AVX-VNNI"), ("amx_int8", "AMX INT8")]
)
def test_a_processor_with_8_bit_products_is_good_for_int8(flag: str, name: str) -> None:
    said = advice(processor("avx2", flag))["INT8"]
    assert name in said
    assert "faster" in said


def test_without_vnni_int8_sums_overflow_and_verdicts_do_not_travel() -> None:
    said = advice(processor("avx2", "avx512f"))["INT8"]
    assert "overflow" in said
    assert "verdict reached here does not hold" in said


def test_arm_is_not_told_about_vnni() -> None:
    assert "VNNI" not in advice(processor("asimd", architecture="aarch64"))["INT8"]
    assert "dot product" in advice(processor("asimd", "asimddp", architecture="aarch64"))["INT8"]


def test_bf16_is_worth_it_where_something_computes_in_it() -> None:
    in_bfloat16, in_float32 = "Calibration in bfloat16", "Calibration in float32"
    assert advice(processor("amx_bf16"))["bf16"].startswith(f"{in_bfloat16}: this CPU has AMX BF16.")
    assert advice(processor("avx2"))["bf16"].startswith(f"{in_float32}: this CPU has no bf16 instructions.")
    assert advice(processor("avx2"), OLD_GPU)["bf16"].startswith(in_float32)
    assert advice(processor("avx2"), NEW_GPU)["bf16"].startswith(in_bfloat16)


@pytest.mark.parametrize("gpu", [None, OLD_GPU, NEW_GPU])
def test_what_is_gated_is_float32_everywhere_and_int4_is_made_anywhere(gpu: Gpu | None) -> None:
    said = advice(processor("avx2"), gpu)
    assert "float32 everywhere" in said["bf16"]
    assert "made and measured on any machine" in said["INT4"]


def test_int4_kernels_want_a_gpu_that_is_new_enough() -> None:
    assert "(compute capability 6.1) is older" in advice(processor("avx2"), OLD_GPU)["INT4"]
    assert "vLLM" in advice(processor("avx2"), NEW_GPU)["INT4"]


def test_sets_are_named_as_people_know_them() -> None:
    assert instruction_sets(processor("avx2", "avx512f", "sse4_1")) == ["AVX2", "AVX-512"]
