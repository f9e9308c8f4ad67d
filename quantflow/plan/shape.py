"""The sizes of a model that decide what a run takes, from config.json or a GGUF header alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quantflow.model.families import FAMILIES, family_of, require_converted
from quantflow.model.sizes import linear_sizes
from quantflow.model.supported import require_supported
from quantflow.source.gguf_header import PLAIN_TYPES, GgufHeader

BYTES_OF: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
"""Bytes of a number by its dtype, in torch's names."""

UNSAID: Mapping[str, Mapping[str, Any]] = {
    "qwen3": {"head_dim": 128},
    "gemma2": {"head_dim": 256, "tie_word_embeddings": True},
    "gemma3_text": {"head_dim": 256, "tie_word_embeddings": True},
    "smollm3": {"tie_word_embeddings": True},
}
"""What transformers takes where config.json does not say, if that is not what Llama takes."""


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder.

    Attributes:
        model_type: As in config.json.
        blocks: Decoder blocks.
        hidden: Width d of the hidden states.
        intermediate: Width of the feed-forward layer.
        query: Heads times their size.
        key_value: Key and value heads times their size.
        vocabulary: Logits per position.
        tied: Whether head and embedding are one tensor.
        dtype: What the checkpoint stores, in torch's names; None where config.json does not say.
    """

    model_type: str
    blocks: int
    hidden: int
    intermediate: int
    query: int
    key_value: int
    vocabulary: int
    tied: bool
    dtype: str | None

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """Linears of a block by name within it → (outputs, inputs)."""
        sizes = linear_sizes(
            hidden=self.hidden,
            intermediate=self.intermediate,
            query=self.query,
            key_value=self.key_value,
        )
        return {name: sizes[name.rpartition(".")[2]] for name in family_of(self.model_type).linears}

    @property
    def units(self) -> dict[str, list[tuple[int, int]]]:
        """Unit → (outputs, inputs) of its linears; all linears of a unit have one input."""
        linears = self.linears
        return {unit: [linears[n] for n in names] for unit, names in family_of(self.model_type).units.items()}

    @property
    def block_parameters(self) -> int:
        """Weights of the linears of one block."""
        return sum(outputs * inputs for outputs, inputs in self.linears.values())

    @property
    def embedding_parameters(self) -> int:
        """Weights of the embedding, and of the head as well if that is another tensor."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        """All weights; norms and biases, which are thousandths, left out."""
        return self.blocks * self.block_parameters + self.embedding_parameters


class UnknownShapeError(Exception):
    """A model's sizes cannot be told; the message says why."""


def shape_from_config(config: Mapping[str, Any]) -> ModelShape:
    """Sizes from the content of a config.json.

    Raises:
        RecipeError: The architecture is not supported.
        UnknownShapeError: A size is missing, or the architecture is not listed.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise UnknownShapeError("config.json has no model_type")
    require_supported(config)
    if model_type not in FAMILIES:
        raise UnknownShapeError(
            f"models of type {model_type!r} are not listed: what they are made of is found out by the run"
        )
    config = {**UNSAID.get(model_type, {}), **config}
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        head = int(config.get("head_dim") or hidden // heads)
        return ModelShape(
            model_type=model_type,
            blocks=int(config["num_hidden_layers"]),
            hidden=hidden,
            intermediate=int(config["intermediate_size"]),
            query=heads * head,
            key_value=int(config.get("num_key_value_heads") or heads) * head,
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            dtype=_dtype(config.get("dtype") or config.get("torch_dtype")),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise UnknownShapeError(f"config.json does not give the model's sizes: {error}") from error


def shape_from_gguf(header: GgufHeader) -> ModelShape:
    """Sizes from a GGUF header; the dtype is that of the checkpoint it will be converted to.

    Raises:
        RecipeError: The architecture is not supported.
        UnknownShapeError: A size is missing.
    """
    about, name = header.metadata, header.architecture
    require_converted(name)
    try:
        heads, hidden = (
            int(about[f"{name}.attention.head_count"]),
            int(about[f"{name}.embedding_length"]),
        )
        head = int(about.get(f"{name}.attention.key_length", hidden // heads))
        return ModelShape(
            model_type=name,
            blocks=int(about[f"{name}.block_count"]),
            hidden=hidden,
            intermediate=int(about[f"{name}.feed_forward_length"]),
            query=heads * head,
            key_value=int(about.get(f"{name}.attention.head_count_kv", heads)) * head,
            vocabulary=int(about.get(f"{name}.vocab_size") or about["tokenizer.ggml.tokens"]),
            tied="output.weight" not in header.tensors,
            dtype=_gguf_dtype(header),
        )
    except (KeyError, ValueError, ZeroDivisionError) as error:
        raise UnknownShapeError(f"the GGUF header does not give the model's sizes: {error}") from error


def _dtype(value: object) -> str | None:
    name = str(value).removeprefix("torch.")
    return name if name in BYTES_OF else None


def _gguf_dtype(header: GgufHeader) -> str:
    halves = {tensor.type for tensor in header.tensors.values()} - {"F32"}
    if header.is_quantized:
        return "float16"
    return PLAIN_TYPES[halves.pop()] if len(halves) == 1 else "float32"
