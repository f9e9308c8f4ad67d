"""Model families as data: where the blocks are, which linears form a unit, where a scale can be folded."""

from collections.abc import Mapping
from dataclasses import dataclass

from quantflow.errors import RecipeError


@dataclass(frozen=True)
class Fold:
    """A place where the input scale of a unit is moved to, so that it costs nothing at run time.

    Attributes:
        into: Module of the block whose output the unit reads, e.g. `input_layernorm` or `mlp.up_proj`: its
            output is divided by the scale, per channel.
        unit: The unit whose input columns are multiplied by the scale.
        needs_equal_shapes: Whether the fold holds only where `into` has as many output channels as the unit
            has inputs (`self_attn.v_proj` under grouped-query attention has fewer).
    """

    into: str
    unit: str
    needs_equal_shapes: bool = False


@dataclass(frozen=True)
class Family:
    """What QuantFlow knows of an architecture.

    Attributes:
        model_type: As in config.json.
        blocks: Path of the decoder blocks in the model.
        units: Unit → its linears within a block, in the order a runtime fuses them.
        folds: Where scales may go.
    """

    model_type: str
    blocks: str
    units: Mapping[str, tuple[str, ...]]
    folds: tuple[Fold, ...]

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
LLAMA_FOLDS = (
    Fold("input_layernorm", "qkv"),
    Fold("self_attn.v_proj", "o", needs_equal_shapes=True),
    Fold("post_attention_layernorm", "gate_up"),
    Fold("mlp.up_proj", "down"),
)
FAMILIES: Mapping[str, Family] = {
    model_type: Family(model_type, "model.layers", LLAMA_UNITS, LLAMA_FOLDS)
    for model_type in ("llama", "mistral", "qwen2")
}


def family_of(model_type: str) -> Family:
    """The family of a model by its config.json's `model_type`.

    Raises:
        RecipeError: If QuantFlow does not know the architecture; names those it knows.
    """
    if model_type not in FAMILIES:
        raise RecipeError(
            f"models of type {model_type!r} are not supported",
            where="model.source",
            hint=f"Supported are {', '.join(sorted(FAMILIES))}.",
        )
    return FAMILIES[model_type]
