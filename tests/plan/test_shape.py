"""A model's sizes from its config.json or GGUF header are those of its weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as Type
from transformers import AutoConfig, AutoModelForCausalLM

from quantflow.errors import RecipeError
from quantflow.model.families import FAMILIES
from quantflow.plan.shape import UnknownShapeError, shape_from_config, shape_from_gguf
from quantflow.source.gguf_header import GgufHeader, read_header
from tests.source.gguf_files import write_gguf
from tests.tiny_models import tiny_config, tiny_tokenizer


def weights_of(config: Any) -> int:
    """Elements of all matrices of the real model, tied ones once."""
    with torch.device("meta"):
        build: Any = AutoModelForCausalLM.from_config
        model = build(config)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.ndim == 2)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *[(kind, {}) for kind in sorted(FAMILIES)],
        ("llama", {"tie_word_embeddings": True}),
        ("mistral", {"head_dim": 32}),
        ("qwen2", {"num_key_value_heads": 1}),
    ],
)
def test_parameters_are_those_of_the_model(kind: str, changes: dict[str, Any]) -> None:
    config = tiny_config(kind, **changes)
    shape = shape_from_config(json.loads(config.to_json_string(use_diff=False)))
    assert shape.parameters == weights_of(config)
    assert shape.blocks == 3


@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_what_config_does_not_say_is_what_transformers_takes(kind: str) -> None:
    make: Any = AutoConfig.for_model
    silent = make(kind)
    sizes = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
    said = {name: getattr(silent, name) for name in (*sizes, "num_key_value_heads")}
    shape = shape_from_config({"model_type": kind, **said})
    head = getattr(silent, "head_dim", None) or silent.hidden_size // silent.num_attention_heads
    assert shape.query == silent.num_attention_heads * head
    assert shape.tied is silent.tie_word_embeddings


def test_an_architecture_that_is_not_listed_is_unknown_before_the_run() -> None:
    with pytest.raises(UnknownShapeError, match="'falcon' are not listed"):
        shape_from_config({"model_type": "falcon"})


def test_an_expert_mixture_is_refused_as_the_run_would() -> None:
    with pytest.raises(RecipeError, match="mixture of experts"):
        shape_from_config({"model_type": "mixtral", "num_local_experts": 8})


def test_a_gguf_header_tells_the_same_as_the_config(tmp_path: Path) -> None:
    config = tiny_config(tie_word_embeddings=True)
    build: Any = AutoModelForCausalLM.from_config
    path = write_gguf(tmp_path / "tiny.gguf", build(config), tiny_tokenizer(), matrices=Type.F16)
    told = shape_from_gguf(read_header(path))
    expected = shape_from_config(json.loads(config.to_json_string(use_diff=False)) | {"dtype": "float16"})
    assert told == expected


def test_a_gguf_file_that_the_run_would_refuse_is_refused() -> None:
    with pytest.raises(RecipeError, match="GGUF files of models of type 'gemma2'"):
        shape_from_gguf(GgufHeader("gemma2", {}, {}))


def test_a_quantized_gguf_becomes_float16(tmp_path: Path) -> None:
    build: Any = AutoModelForCausalLM.from_config
    model = build(tiny_config(tie_word_embeddings=True))
    path = write_gguf(tmp_path / "tiny.gguf", model, tiny_tokenizer(), matrices=Type.Q8_0)
    assert shape_from_gguf(read_header(path)).dtype == "float16"


def test_an_unsupported_architecture_is_refused_as_the_run_would() -> None:
    with pytest.raises(RecipeError, match="'gpt2'"):
        shape_from_config({"model_type": "gpt2"})


@pytest.mark.parametrize("missing", ["model_type", "hidden_size", "num_hidden_layers", "vocab_size"])
def test_a_missing_size_is_unknown(missing: str) -> None:
    config = json.loads(tiny_config().to_json_string(use_diff=False))
    del config[missing]
    with pytest.raises(UnknownShapeError, match=missing):
        shape_from_config(config)
