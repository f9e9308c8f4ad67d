"""What a scan is planned to take."""

from dataclasses import replace
from typing import Any

import pytest

from quantflow.plan.scanning import scan_cost, settle_cost
from quantflow.plan.shape import shape_from_config
from quantflow.plan.text import TextSize
from quantflow.plan.work import Cost
from quantflow.quantize.params import Scheme
from quantflow.sensitivity.params import ChoiceParams, ScanParams, SettleParams

INT4 = Scheme(method="awq", bits=4, group_size=128)
INT8 = Scheme(method="gptq", bits=8, group_size=128)
# Llama-3.2-3B's.
SHAPE = shape_from_config(
    {
        "model_type": "llama",
        "num_hidden_layers": 28,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128_256,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
    }
)
TEXT = TextSize(
    known_by="counted",
    held_tokens=1_000_000,
    calibration_windows=512,
    calibration_length=2048,
    evaluation_windows=100,
    evaluation_tokens=50_000,
    positions=49_900,
    selection_tokens=20_000,
    selection_positions=19_900,
)


def cost(method: str = "auto", *schemes: Scheme, **changes: Any) -> Cost:
    """Of a scan; of method `auto` that and of settling it."""
    precisions = schemes or (INT4,)
    params: dict[str, Any] = {"device": "cpu", "batch_tokens": 2048, **changes}
    scan = ScanParams(
        precisions=precisions,
        method="fisher" if method == "auto" else method,  # type: ignore[arg-type]
        **params,
    )
    found = scan_cost(scan, SHAPE, TEXT)
    if method != "auto":
        return found
    choices = (ChoiceParams(precisions=(precisions[0].id,)),)
    settling = settle_cost(SettleParams(scan=scan, choices=choices), SHAPE, TEXT)
    assert found.work is not None
    assert settling.work is not None
    assert settling.host_bytes is not None
    assert settling.host_bytes < 3_000_000_000
    return replace(found, work=found.work + settling.work)


def products(found: Cost) -> float:
    assert found.work is not None
    return sum(found.work.matmuls.values())


def test_exact_scores_of_all_units_take_many_times_what_estimates_do() -> None:
    assert products(cost("exact")) > 4 * products(cost("auto"))
    assert products(cost("auto")) > products(cost("fisher"))
    assert products(cost("fisher")) == products(cost("activation"))


def test_work_goes_with_the_tokens_and_no_further_than_the_text() -> None:
    assert products(cost(tokens=8192)) == pytest.approx(2 * products(cost(tokens=4096)), rel=0.05)
    # 512 windows of at most 512 tokens each.
    assert products(cost("exact", tokens=10**7)) == pytest.approx(products(cost("exact", tokens=512 * 512)))


def test_a_further_precision_takes_less_than_another_scan() -> None:
    one, two = products(cost("fisher")), products(cost("fisher", INT4, INT8))
    assert one < two < 1.5 * one


def test_memory_is_less_than_the_model() -> None:
    found = cost()
    assert found.host_bytes is not None
    assert found.host_bytes < 3_000_000_000
    assert found.scratch_bytes > 29 * 4096 * 3072 * 4
