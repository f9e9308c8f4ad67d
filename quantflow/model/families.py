"""Model families as data: where the blocks are, which linears form a unit, where a scale can be folded."""

from collections.abc import Mapping
from dataclasses import dataclass

from quantflow.errors import RecipeError

FUSED_IN_QKV = 3
"""Query, key and value: what a fused `qkv_proj` holds, the value last, as wide as the others without grouped
queries only."""


@dataclass(frozen=True)
class Fold:
    """A place where the input scale of a unit is moved to, so that it costs nothing at run time.

    Attributes:
        into: Module of the block whose output the unit reads, e.g. `input_layernorm` or `mlp.up_proj`: its
            output is divided by the scale, per channel.
        unit: The unit whose input columns are multiplied by the scale.
        needs_equal_shapes: Whether the fold holds only where what the unit reads of `into` has as many
            channels as the unit has inputs (values under grouped-query attention have fewer).
        last_rows: Whether `into` is a fused linear of which the unit reads the last rows: the values of a
            `qkv_proj`, the up part of a `gate_up_proj`. The other rows are left as they are.
    """

    into: str
    unit: str
    needs_equal_shapes: bool = False
    last_rows: bool = False

    def holds(self, outputs: int, inputs: int) -> bool:
        """Whether a scale of the unit's `inputs` entries can go into a linear of so many `outputs`."""
        fused = FUSED_IN_QKV if self.last_rows else 1
        return not self.needs_equal_shapes or outputs == fused * inputs


@dataclass(frozen=True)
class Family:
    """What QuantFlow knows of an architecture.

    Attributes:
        model_type: As in config.json.
        blocks: Path of the decoder blocks in the model.
        units: Unit → its linears within a block, in the order a runtime fuses them.
        folds: Where scales may go.
        norm_offset: What norms that are folded into add to their weight: 1 where they multiply by 1 + w.
        outside: Linears outside the blocks, by full name; they are never quantized.
        listed: Whether the family is one of `FAMILIES`; one that is not was made out of the model itself.
    """

    model_type: str
    blocks: str
    units: Mapping[str, tuple[str, ...]]
    folds: tuple[Fold, ...]
    norm_offset: float = 0.0
    outside: tuple[str, ...] = ("lm_head",)
    listed: bool = True

    def block_name(self, index: int) -> str:
        """Full name of a block, e.g. `model.layers.0`."""
        return f"{self.blocks}.{index}"

    @property
    def linears(self) -> tuple[str, ...]:
        """All linears of a block that belong to a unit, within the block, e.g. `self_attn.q_proj`."""
        return tuple(linear for linears in self.units.values() for linear in linears)


LLAMA_UNITS: Mapping[str, tuple[str, ...]] = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
FUSED_UNITS: Mapping[str, tuple[str, ...]] = {
    "qkv": ("self_attn.qkv_proj",),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_up_proj",),
    "down": ("mlp.down_proj",),
}
VALUES_AND_UP = (Fold("self_attn.v_proj", "o", needs_equal_shapes=True), Fold("mlp.up_proj", "down"))
LLAMA_FOLDS = (
    Fold("input_layernorm", "qkv"),
    Fold("post_attention_layernorm", "gate_up"),
    *VALUES_AND_UP,
)
# Gemma's post_attention_layernorm comes after attention and before the residual, not before the MLP.
GEMMA_FOLDS = (Fold("input_layernorm", "qkv"), Fold("pre_feedforward_layernorm", "gate_up"), *VALUES_AND_UP)
FUSED_FOLDS = (
    Fold("input_layernorm", "qkv"),
    Fold("self_attn.qkv_proj", "o", needs_equal_shapes=True, last_rows=True),
    Fold("post_attention_layernorm", "gate_up"),
    Fold("mlp.gate_up_proj", "down", last_rows=True),
)

_LAYERS = "model.layers"
FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        Family("llama", _LAYERS, LLAMA_UNITS, LLAMA_FOLDS),
        Family("mistral", _LAYERS, LLAMA_UNITS, LLAMA_FOLDS),
        Family("qwen2", _LAYERS, LLAMA_UNITS, LLAMA_FOLDS),
        Family("qwen3", _LAYERS, LLAMA_UNITS, LLAMA_FOLDS),
        Family("smollm3", _LAYERS, LLAMA_UNITS, LLAMA_FOLDS),
        Family("granite", _LAYERS, LLAMA_UNITS, LLAMA_FOLDS),
        Family("gemma2", _LAYERS, LLAMA_UNITS, GEMMA_FOLDS, norm_offset=1.0),
        Family("gemma3_text", _LAYERS, LLAMA_UNITS, GEMMA_FOLDS, norm_offset=1.0),
        # Phi-4 says phi3, too.
        Family("phi3", _LAYERS, FUSED_UNITS, FUSED_FOLDS),
        # Its norms come after attention and MLP: projections read the hidden states as they are.
        Family("olmo2", _LAYERS, LLAMA_UNITS, VALUES_AND_UP),
    )
}


CONVERTED: tuple[str, ...] = ("llama", "mistral", "qwen2")
"""Families that a GGUF file is taken of. Of some others transformers' conversion leaves out what changes the
model: Gemma's scale of attention scores where a size has another than the usual one, Phi's part of a head
that is rotated. The rest has not been tried."""


def require_converted(architecture: str) -> None:
    """Refuse a GGUF file of an architecture whose conversion does not carry all of the model.

    Raises:
        RecipeError: It is one of those.
    """
    if architecture not in CONVERTED:
        raise RecipeError(
            f"GGUF files of models of type {architecture!r} are not supported",
            where="model.source",
            hint=f"GGUF files are taken of {', '.join(CONVERTED)}; of others, use the safetensors "
            "checkpoint.",
        )


def family_of(model_type: str) -> Family:
    """The listed family of a model by its config.json's `model_type`.

    Raises:
        RecipeError: If QuantFlow does not list the architecture; names those it does.
    """
    if model_type not in FAMILIES:
        raise RecipeError(
            f"models of type {model_type!r} are not supported",
            where="model.source",
            hint=f"Supported are {', '.join(sorted(FAMILIES))}.",
        )
    return FAMILIES[model_type]
