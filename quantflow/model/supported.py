"""What config.json alone says against a model: refused before anything is fetched or built."""

from collections.abc import Iterator, Mapping
from typing import Any

from quantflow.errors import RecipeError
from quantflow.model.families import FAMILIES

CONV1D = ("gpt2", "openai-gpt")
"""Architectures whose weights lie in transformers' Conv1D, transposed; INT4 formats know linears only."""
SEVERAL_EXPERTS = 2
"""One expert is a dense layer under another name; dense models of some types say 0."""


def require_supported(config: Mapping[str, Any]) -> None:
    """Refuse what is certainly no decoder of uniform dense blocks.

    What passes and is not listed has to be looked at with the model built: `model.build.family_at`.

    Args:
        config: The content of a config.json; its `model_type` is a string.

    Raises:
        RecipeError: It is one of those.
    """
    why = next(_objections(config), "")
    if why:
        raise refusal(config["model_type"], why)


def refusal(model_type: str, why: str) -> RecipeError:
    """What a model that cannot be used is answered with."""
    return RecipeError(
        f"models of type {model_type!r} are not supported: {why}",
        where="model.source",
        hint=f"Listed are {', '.join(sorted(FAMILIES))}; of others, decoders of uniform blocks of attention "
        "and dense linears can be used.",
    )


def _objections(config: Mapping[str, Any]) -> Iterator[str]:
    if config["model_type"] in CONV1D:
        yield "their weights are stored in Conv1D layers, which no INT4 format here has a place for"
    if config.get("is_encoder_decoder") is True:
        yield "it is an encoder-decoder and no decoder alone"
    if isinstance(config.get("text_config"), Mapping):
        yield "it takes more than text, with a language model as a part (text_config)"
    if config.get("use_bidirectional_attention"):
        yield "its attention sees later tokens (use_bidirectional_attention), so that it predicts nothing"
    for key, value in _expert_counts(config):
        yield f"it is a mixture of experts ({key}: {value}), which is not built yet"


def _expert_counts(config: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _expert_counts(value)
        elif "expert" in key and "per" not in key.split("_"):
            counts = value if isinstance(value, list) else [value]
            if any(type(count) is int and count >= SEVERAL_EXPERTS for count in counts):
                yield key, value
