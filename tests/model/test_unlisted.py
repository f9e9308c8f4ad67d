"""An architecture that is not listed is found out by looking at it, or refused with the reason."""

from pathlib import Path
from typing import Any

import pytest
import torch

from quantflow.errors import RecipeError
from quantflow.model.build import build_empty, family_at
from quantflow.model.families import FAMILIES, Family
from quantflow.model.supported import require_supported
from quantflow.model.unlisted import inspect_blocks
from tests.tiny_models import tiny_config

QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def empty(kind: str, **changes: Any) -> Any:
    return build_empty(tiny_config(kind, **changes), Path("model"), torch.float32, buffers=False)


def inspected(kind: str, **changes: Any) -> Family:
    model = empty(kind, **changes)
    return inspect_blocks(model, model.config)


@pytest.mark.parametrize("kind", sorted(set(FAMILIES) - {"phi3"}))
def test_looking_at_a_listed_model_finds_what_is_listed(kind: str) -> None:
    found, listed = inspected(kind), FAMILIES[kind]
    assert (found.blocks, found.outside) == (listed.blocks, listed.outside)
    assert set(found.units.values()) == set(listed.units.values())
    assert not found.listed
    assert not found.folds


def test_a_linear_that_is_fused_with_no_other_is_a_unit_of_its_own() -> None:
    family = inspected("cohere")
    assert family.units == {
        "self_attn.qkv": QKV,
        "self_attn.o_proj": ("self_attn.o_proj",),
        "mlp.gate_up": ("mlp.gate_proj", "mlp.up_proj"),
        "mlp.down_proj": ("mlp.down_proj",),
    }
    nemotron = inspected("nemotron").units
    assert nemotron["mlp.up_proj"] == ("mlp.up_proj",)
    assert "mlp.gate_up" not in nemotron


def test_blocks_are_found_wherever_they_are() -> None:
    family = inspected("falcon")
    assert family.blocks == "transformer.h"
    assert family.linears == (
        "self_attention.query_key_value",
        "self_attention.dense",
        "mlp.dense_h_to_4h",
        "mlp.dense_4h_to_h",
    )


@pytest.mark.parametrize(
    ("kind", "changes", "complaint"),
    [
        ("mixtral", {"num_local_experts": 2}, "mixture of experts"),
        ("mamba", {}, r"backbone.layers.0.mixer.\w+ belongs to a MambaMixer"),
        ("gpt2", {}, r"belongs to a Conv1D|no single list"),
        ("lfm2", {"layer_types": ["conv", "full_attention", "conv"]}, "belongs to a Conv1d|not alike"),
        (
            "olmo_hybrid",
            {"layer_types": ["linear_attention", "linear_attention", "full_attention"]},
            "not alike: model.layers.0 and model.layers.2 differ in",
        ),
    ],
)
def test_what_is_no_decoder_of_uniform_dense_blocks_is_refused(
    kind: str, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(RecipeError, match=complaint) as refused:
        inspected(kind, **changes)
    assert f"'{kind}' are not supported" in refused.value.message
    assert all(model_type in refused.value.hint for model_type in FAMILIES)


def test_a_type_that_transformers_has_no_causal_model_of_is_refused(tmp_path: Path) -> None:
    tiny_config("vit").save_pretrained(tmp_path)
    with pytest.raises(RecipeError, match="no causal language model of type 'vit'"):
        family_at(tmp_path, "vit")


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"model_type": "gpt2"}, "Conv1D"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "gemma3", "text_config": {}}, "more than text"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "later tokens"),
        ({"model_type": "mixtral", "num_local_experts": 8}, r"experts \(num_local_experts: 8\)"),
        ({"model_type": "qwen3_moe", "num_experts": 128}, r"experts \(num_experts: 128\)"),
        ({"model_type": "deepseek_v3", "n_routed_experts": 256}, r"experts \(n_routed_experts: 256\)"),
        ({"model_type": "dbrx", "ffn_config": {"moe_num_experts": 16}}, r"moe_num_experts: 16"),
        ({"model_type": "ernie", "moe_num_experts": [64, 64]}, r"moe_num_experts: \[64, 64\]"),
    ],
)
def test_config_alone_is_enough_to_refuse(config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RecipeError, match=complaint):
        require_supported(config)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llama"},
        {"model_type": "granitemoehybrid", "num_local_experts": 0, "num_experts_per_tok": 8},
        {"model_type": "somebody", "num_experts": None, "use_bidirectional_attention": False},
    ],
)
def test_what_says_nothing_against_itself_passes(config: dict[str, Any]) -> None:
    require_supported(config)
