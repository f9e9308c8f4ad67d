"""What is counted is what torch does: products against torch's own counter, bytes against what is written."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from quantflow.calibrate.stream import calibrate_blocks
from quantflow.measure.params import BaselineParams, MeasureParams
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.forward import BlockPass, final_hidden
from quantflow.model.passes import PassProgress
from quantflow.model.weights import SafetensorsReader
from quantflow.plan.forward import forward_work, head_work
from quantflow.plan.measuring import PADDING, baseline_cost, measure_cost
from quantflow.plan.model import find_model
from quantflow.plan.quantizing import grams_work, quantize_cost
from quantflow.plan.shape import ModelShape
from quantflow.plan.text import TextSize
from quantflow.plan.work import Work, amounts, matmul
from quantflow.quantize.block import quantize_block
from quantflow.quantize.params import QuantizeParams, Scheme
from quantflow.source.uri import parse
from tests.reporting import RecordingReporter

WINDOWS, LENGTH, BATCH = 4, 32, 64
TEXT = TextSize(
    known_by="counted",
    held_tokens=WINDOWS * LENGTH,
    calibration_windows=WINDOWS,
    calibration_length=LENGTH,
    evaluation_windows=WINDOWS,
    evaluation_tokens=round(WINDOWS * LENGTH / PADDING),
    positions=WINDOWS * (LENGTH - 1),
)
AWQ = Scheme(method="awq", bits=4, group_size=32)
GPTQ = Scheme(method="gptq", bits=4, group_size=32, symmetric=True, scale_search="mse")
STATIC = Scheme(method="gptq", bits=3, group_size=64, desc_act=True, static_groups=True)
QUANTIZE = QuantizeParams(candidates=(AWQ,), device="cpu", batch_tokens=BATCH)
MATMULS = ("aten.mm", "aten.addmm", "aten.addmm_", "aten.bmm")


@pytest.fixture(scope="module")
def shape(tiny_llama: Path) -> ModelShape:
    found = find_model(parse(str(tiny_llama), Path("/")), None, None).shape
    assert found is not None
    return found


@pytest.fixture
def decoder(tiny_llama: Path) -> StreamedDecoder:
    return StreamedDecoder(tiny_llama, SafetensorsReader(tiny_llama))


def ids() -> list[torch.Tensor]:
    return list(torch.arange(WINDOWS * LENGTH).reshape(-1, BATCH // LENGTH, LENGTH) % 400)


def counting() -> FlopCounterMode:
    """Torch's counter, told of sums that are added to in place as well."""

    def flops(total: Any, one: Any, other: Any, **kwargs: Any) -> int:
        return 2 * int(one[0] * one[1] * other[1])

    return FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: flops})


def products(counter: Any) -> int:
    counts = counter.get_flop_counts()["Global"]
    return sum(amount for operation, amount in counts.items() if str(operation) in MATMULS)


def counted(work: Work | None) -> float:
    assert work is not None
    return sum(work.matmuls.values())


def test_products_of_a_forward_and_its_head_are_those_that_torch_counts(
    decoder: StreamedDecoder, shape: ModelShape, reporter: RecordingReporter
) -> None:
    with counting() as counter:
        hidden = torch.cat([batch[:, 1:] for batch in final_hidden(decoder, ids(), reporter, "x")])
        decoder.logits(hidden.reshape(-1, decoder.hidden_size))
    work = baseline_cost(BaselineParams(device="cpu", batch_tokens=BATCH), shape, TEXT).work
    assert counted(work) == pytest.approx(products(counter), rel=0.01)


@pytest.mark.parametrize("schemes", [(AWQ,), (GPTQ,), (AWQ, GPTQ, STATIC)], ids=["awq", "gptq", "three"])
def test_products_of_quantizing_are_those_that_torch_counts(
    decoder: StreamedDecoder, shape: ModelShape, tmp_path: Path, schemes: tuple[Scheme, ...]
) -> None:
    with counting() as counter:
        states = BlockPass(decoder, ids(), PassProgress(RecordingReporter(progress_folder=tmp_path)))
        searched = {fold.unit for fold in decoder.family.folds}
        for block in calibrate_blocks(states, decoder.family.units, lambda blocks: None, searched):
            quantize_block(block, decoder.family, schemes, stored_as=torch.bfloat16)
    params = QUANTIZE.model_copy(update={"candidates": schemes})
    # The search tries fewer exponents where the best lies at an end of the range.
    assert counted(quantize_cost(params, shape, TEXT).work) == pytest.approx(products(counter), rel=0.1)


def test_candidates_share_the_forward(shape: ModelShape) -> None:
    together = QUANTIZE.model_copy(update={"candidates": (AWQ, GPTQ)})
    alone = [QUANTIZE.model_copy(update={"candidates": (scheme,)}) for scheme in (AWQ, GPTQ)]
    each = [counted(quantize_cost(params, shape, TEXT).work) for params in alone]
    shared = forward_work(shape, TEXT.calibration_tokens, LENGTH, BATCH)
    shared += grams_work(shape, TEXT, BATCH).times(shape.blocks)
    assert counted(quantize_cost(together, shape, TEXT).work) == pytest.approx(sum(each) - counted(shared))


def test_rounding_to_nearest_needs_no_products(shape: ModelShape) -> None:
    rtn = Scheme(method="rtn", bits=4, group_size=32)
    assert counted(quantize_cost(QUANTIZE.model_copy(update={"candidates": (rtn,)}), shape, TEXT).work) == 0


def test_in_bfloat16_the_forward_and_nothing_else_is_counted_apart(shape: ModelShape) -> None:
    in_float32 = quantize_cost(QUANTIZE, shape, TEXT).work
    rounded = QUANTIZE.model_copy(update={"calibration_dtype": "bfloat16"})
    in_bfloat16 = quantize_cost(rounded, shape, TEXT).work
    assert in_bfloat16 is not None
    forward = counted(forward_work(shape, WINDOWS * LENGTH, LENGTH, BATCH))
    assert in_bfloat16.amounts["bf16"] == pytest.approx(forward)
    assert counted(in_bfloat16) == pytest.approx(counted(in_float32) - forward)


def test_an_artifact_is_measured_with_two_heads(shape: ModelShape) -> None:
    params = MeasureParams(device="cpu", batch_tokens=BATCH)
    baseline = baseline_cost(BaselineParams(device="cpu", batch_tokens=BATCH), shape, TEXT).work
    extra = counted(measure_cost(params, shape, TEXT).work) - counted(baseline)
    assert extra == pytest.approx(counted(head_work(shape, TEXT.positions)))


def test_on_a_gpu_states_and_blocks_lie_there(shape: ModelShape) -> None:
    on_gpu = quantize_cost(QUANTIZE.model_copy(update={"device": "cuda"}), shape, TEXT)
    here = quantize_cost(QUANTIZE, shape, TEXT)
    assert on_gpu.device_bytes > 0
    assert here.device_bytes == 0
    assert on_gpu.host_bytes is not None
    assert here.host_bytes == on_gpu.device_bytes + on_gpu.host_bytes


def test_hidden_states_take_memory_until_there_are_so_many_that_they_are_kept_on_disk(
    shape: ModelShape,
) -> None:
    from dataclasses import replace

    sizes = [
        quantize_cost(QUANTIZE, shape, replace(TEXT, calibration_windows=n)).host_bytes
        for n in (10_000, 20_000, 10**6, 10**7)
    ]
    assert None not in sizes
    less, more, spilled, still = (size or 0 for size in sizes)
    assert more - less == 10_000 * LENGTH * shape.hidden * 4
    assert spilled == still < less


def test_work_adds_up() -> None:
    both = matmul(64, 64, 64) + matmul(64, 128, 64) + amounts(rounding=3)
    assert both.times(2) == Work({64: 2 * (2 * 64**3 + 2 * 64 * 128 * 64)}, {"rounding": 6})
