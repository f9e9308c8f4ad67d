"""A model of transformers without weights, and the family it belongs to."""

from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from quantflow.errors import RecipeError, SourceError
from quantflow.model.config import CONFIG_FILE, load_config
from quantflow.model.families import FAMILIES, Family
from quantflow.model.unlisted import inspect_blocks


def attention_of(config: Any) -> str:
    """The implementation of attention that computes what the config describes: `sdpa` or `eager`.

    transformers' sdpa leaves the soft-capping of attention scores out without a word.
    """
    architecture: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    capped = getattr(config, "attn_logit_softcapping", None) is not None
    return "eager" if capped or not architecture._supports_sdpa else "sdpa"


def build_empty(config: Any, folder: Path, dtype: torch.dtype, *, buffers: bool) -> Any:
    """The model without weights, in evaluation mode.

    Args:
        config: As `load_config` gives it.
        folder: Where it is from, for messages.
        dtype: What its parameters would be in.
        buffers: Whether its buffers, such as rotary frequencies, are real.

    Raises:
        RecipeError: transformers has no causal language model of that type.
        SourceError: The config describes something that cannot be built.
    """
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise RecipeError(
            f"transformers has no causal language model of type {config.model_type!r}",
            where=str(folder / CONFIG_FILE),
            hint="QuantFlow takes decoder models with a language-model head, such as LlamaForCausalLM.",
        )
    build: Any = AutoModelForCausalLM.from_config
    try:
        with init_empty_weights(include_buffers=not buffers):
            model = build(
                config, dtype=dtype, attn_implementation=attention_of(config), trust_remote_code=False
            )
    except Exception as cause:  # a config may name an activation or a rotary embedding that there is not
        raise SourceError(
            f"transformers cannot build what config.json describes: {type(cause).__name__}: {cause}",
            where=str(folder / CONFIG_FILE),
        ) from cause
    return model.eval()


def family_at(folder: Path, model_type: str) -> Family:
    """The family of the model in a folder: a listed one, or what is found by looking at the model.

    Raises:
        RecipeError: The model is no decoder of uniform dense blocks.
        SourceError: config.json cannot be read, or describes what cannot be built.
    """
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    config = load_config(folder)
    return inspect_blocks(build_empty(config, folder, torch.float32, buffers=False), config)
