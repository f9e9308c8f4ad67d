"""What the stages of ONNX artifacts take, as far as it can be told before anything runs."""

from dataclasses import replace
from typing import Any

import pytest

from quantflow.formats.onnx.builder import ARCHITECTURES
from quantflow.formats.onnx.params import OnnxAssembleParams, OnnxBaseParams, OnnxScheme
from quantflow.measure.onnx_params import (
    OnnxFidelityParams,
    OnnxMeasureParams,
    OnnxNoiseParams,
    OnnxSpeedParams,
)
from quantflow.model.families import FAMILIES
from quantflow.plan import onnx
from quantflow.plan.assigning import assign_cost
from quantflow.plan.measuring import on_selection
from quantflow.plan.shape import ModelShape
from quantflow.plan.work import Cost
from quantflow.sensitivity.choosing import AssignParams, Choosing
from tests.formats.onnx.conftest import BUILD, SESSION
from tests.plan.test_plan import SPEED
from tests.plan.test_remedying import TEXT
from tests.tiny_models import tiny_config

SMOLLM2 = ModelShape(
    model_type="llama",
    blocks=30,
    hidden=576,
    intermediate=1536,
    query=576,
    key_value=192,
    vocabulary=49152,
    tied=True,
    dtype="float16",
)
MEASURE = OnnxMeasureParams(session=SESSION, instruction_set="avx2")


def seconds(cost: Cost) -> float:
    assert cost.work is not None
    assert cost.unknown == ""
    return SPEED.seconds(cost.work)


def assembled(scheme: OnnxScheme, shape: ModelShape = SMOLLM2) -> Cost:
    return onnx.assemble_cost(OnnxAssembleParams(name="a", scheme=scheme, session=SESSION), shape)


def test_nothing_of_an_onnx_artifact_is_unknown() -> None:
    speed = OnnxSpeedParams(
        session=SESSION, instruction_set="avx2", contexts=(128,), output_tokens=8, rounds=3
    )
    costs = [
        onnx.base_cost(BUILD, SMOLLM2),
        onnx.baseline_cost(MEASURE, SMOLLM2, TEXT),
        onnx.measure_cost(MEASURE, SMOLLM2, TEXT),
        onnx.speed_cost(speed, SMOLLM2),
        assembled("w8"),
    ]
    windows = OnnxNoiseParams(session=SESSION, windows=2)
    costs.append(onnx.noise_cost(windows, SMOLLM2, TEXT))
    against_torch = OnnxFidelityParams(session=SESSION, device="cpu", windows=2, tokens=64)
    costs.append(onnx.fidelity_cost(against_torch, SMOLLM2))
    for cost in costs:
        assert seconds(cost) > 0
        assert cost.host_bytes
        assert cost.disk_bytes


# Bytes that `benchmarks/onnx.py` found on disk for this very shape, 2026-11-30.
@pytest.mark.parametrize(
    ("scheme", "found"),
    [("fp32", 543_997_428), ("w8", 255_291_809), ("w8a8", 278_424_347), ("w8-block", 270_800_000)],
)
def test_the_size_of_an_artifact_is_right_to_a_quarter(scheme: OnnxScheme, found: int) -> None:
    assert assembled(scheme).disk_bytes == pytest.approx(found, rel=0.25)


def test_quantize_dynamic_holds_the_model_and_needs_room_for_a_copy() -> None:
    dynamic, own = assembled("dynamic"), assembled("w8")
    assert (dynamic.host_bytes or 0) > (own.host_bytes or 0)
    assert dynamic.scratch_bytes == 4 * SMOLLM2.parameters
    assert own.scratch_bytes == 0


def test_an_artifact_takes_as_long_again_as_the_lossless_graph_beside_it() -> None:
    alone, beside = (
        onnx.baseline_cost(MEASURE, SMOLLM2, TEXT),
        onnx.measure_cost(MEASURE, SMOLLM2, TEXT),
    )
    assert seconds(beside) > 1.8 * seconds(alone)
    assert (beside.host_bytes or 0) > 1.8 * (alone.host_bytes or 0)


def test_more_rounds_and_longer_prompts_take_longer_to_time() -> None:
    def timed(rounds: int, *contexts: int) -> float:
        params = OnnxSpeedParams(
            session=SESSION, instruction_set="avx2", contexts=contexts, output_tokens=8, rounds=rounds
        )
        return seconds(onnx.speed_cost(params, SMOLLM2))

    assert timed(3, 128) < timed(6, 128) < timed(6, 128, 512)


def test_a_graph_that_torch_exports_takes_longer_and_holds_a_tied_head_twice() -> None:
    olmo2 = replace(SMOLLM2, model_type="olmo2")
    built, exported = onnx.base_cost(BUILD, SMOLLM2), onnx.base_cost(BUILD, olmo2)
    assert seconds(exported) > seconds(built) + 60
    assert (exported.disk_bytes or 0) - (built.disk_bytes or 0) == 4 * 49152 * 576


@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_which_listed_families_are_exported_is_what_the_builder_does_not_know(kind: str) -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    model: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(tiny_config(kind))]
    architecture = model.__name__
    assert (architecture not in ARCHITECTURES) == (kind in onnx.EXPORTED)


def test_every_candidate_of_a_search_is_written_and_measured() -> None:
    params = OnnxAssembleParams(name="a", scheme="w8a8", session=SESSION)
    choosing = Choosing(assemble=params, graph=MEASURE, ladder=("w8a8",), device="cpu", batch_tokens=64)
    mixed = AssignParams(choosing=choosing, policy="top_k", top_k=1)
    searched = AssignParams(choosing=choosing, policy="search")
    one, two = (assign_cost(given, SMOLLM2, TEXT) for given in (searched, mixed))
    assert seconds(two) == pytest.approx(2 * seconds(one))
    assert seconds(one) > seconds(onnx.measure_cost(MEASURE, SMOLLM2, on_selection(TEXT)))


def test_a_half_precision_graph_is_half_as_large() -> None:
    half = OnnxBaseParams(precision="fp16", provider="cuda", builder="any 1")
    assert onnx.base_cost(half, SMOLLM2).disk_bytes == 2 * SMOLLM2.parameters
