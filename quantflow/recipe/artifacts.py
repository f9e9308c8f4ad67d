"""The artifacts a recipe can ask for: one section for each file format, told apart by `format`."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeGuard

from pydantic import Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from quantflow.quantize.params import DEFAULT_DAMPING
from quantflow.recipe.onnx import OnnxArtifact
from quantflow.recipe.section import Name, Section
from quantflow.recipe.sensitivity import Assigning

HALF_BITS = 16  # of both dtypes that a lossless export may have
ONNX_BITS = 4  # of codes that ONNX artifacts take from others
GPTQ_KEYS = ("desc_act", "static_groups", "damping", "refine")
"""Keys that only the method gptq looks at."""


class _Artifact(Section):
    """What every artifact has."""

    name: Name = Field(
        description="Name of the artifact and of its folder: a-z, 0-9, `.`, `_`, `-`. Unique in the recipe."
    )


class _QuantizedArtifact(_Artifact):
    """What quantized artifacts of every layout have."""

    keep: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        strict=False,
        default=(),
        description="Units that stay in the model's own 16-bit type, by name or pattern: "
        "model.layers.0.down, *.down, model.layers.[01].*. A block's units are qkv, o, gate_up and "
        "down; lm_head stays always. Default: [].",
    )
    sensitivity: Assigning | None = Field(
        default=None,
        description="How units of this artifact are chosen to be spared, in place of all that the recipe's "
        "own `sensitivity` says of that. Default: null, the recipe's.",
    )


class AwqArtifact(_QuantizedArtifact):
    """A quantized model in AutoAWQ's layout, asymmetric."""

    format: Literal["awq"] = Field(description="File format: awq (AutoAWQ's gemm layout).")
    method: Literal["awq", "rtn", "awq+gptq"] = Field(
        default="awq",
        description="Quantization method: awq (activation-aware scales), rtn (rounding to nearest, which "
        "needs no calibration) or awq+gptq (GPTQ's rounding after AWQ's scales). Default: awq.",
    )
    bits: Literal[4] = Field(description="Bits per weight: 4.")
    group_size: Literal[32, 64, 128] = Field(
        default=128,  # what AWQ models are published with and kernels are tuned for
        description="Input channels that share one scale and zero point: 32, 64 or 128. Has to divide the "
        "input width of every layer. Default: 128.",
    )


class GptqArtifact(_QuantizedArtifact):
    """A quantized model in AutoGPTQ's layout."""

    format: Literal["gptq"] = Field(description="File format: gptq (AutoGPTQ's layout, version 1).")
    method: Literal["gptq", "rtn"] = Field(
        default="gptq",
        description="Quantization method: gptq (rounding column by column, each error made up for in the "
        "columns after it) or rtn (rounding to nearest, which needs no calibration). Default: gptq.",
    )
    bits: Literal[2, 3, 4, 8] = Field(description="Bits per weight: 2, 3, 4 or 8.")
    group_size: Literal[-1, 32, 64, 128] = Field(
        default=128,  # what GPTQ models are published with and kernels are tuned for
        description="Input channels that share one scale and zero point: 32, 64 or 128, which has to divide "
        "the input width of every layer, or -1 for all of a layer's. Default: 128.",
    )
    symmetric: bool = Field(
        default=True,
        description="Whether zero is in the middle of the grid, as vLLM's fast Marlin kernels need it. "
        "Default: true.",
    )
    desc_act: bool = Field(
        default=False,
        description="Whether gptq takes the columns by descending activation: closer to the model, slower to "
        "run unless static_groups. Default: false.",
    )
    static_groups: bool = Field(
        default=False,
        description="Whether gptq fixes the scales of all groups before it changes any weight; groups then "
        "stay consecutive under desc_act. Default: false.",
    )
    damping: float = Field(
        default=DEFAULT_DAMPING,
        gt=0,
        le=1,
        description="What gptq adds to the Hessian's diagonal, as a part of its mean: more is stabler and "
        f"less exact. Raised by itself, with an event, where it is not enough. Default: {DEFAULT_DAMPING}.",
    )
    scale_search: Literal["minmax", "mse"] = Field(
        default="mse",
        description="How a group's scale is found: minmax spans the weights' range, mse searches for the "
        "least squared error of the weights. Default: mse.",
    )
    refine: bool = Field(
        default=True,
        description="Whether gptq makes the codes once more, each block seeing the quantized ones before it, "
        "and the better of the two by KL on the selection documents is taken. Default: true.",
    )

    @property
    def refines(self) -> bool:
        """Whether its codes are made once more."""
        return self.refine and self.method == "gptq"

    @model_validator(mode="after")
    def _without_idle_keys(self) -> Self:
        """Refuse keys that rounding to nearest does not look at: who sets them expects something of them."""
        idle = [key for key in GPTQ_KEYS if self.method != "gptq" and key in self.model_fields_set]
        if idle:
            raise PydanticCustomError(
                "idle_key", "it does nothing with method {method}", {"key": idle[0], "method": self.method}
            )
        return self


QuantizedArtifact = AwqArtifact | GptqArtifact


class HfArtifact(_Artifact):
    """The model itself, not quantized, as a plain Hugging Face folder."""

    format: Literal["hf"] = Field(
        description="File format: hf (a plain Hugging Face folder of 16-bit safetensors, read by everything)."
    )
    dtype: Literal["float16", "bfloat16"] = Field(
        description="Type of the stored weights: float16 or bfloat16. What would overflow keeps its own."
    )

    @property
    def bits(self) -> int:
        """Bits per weight."""
        return HALF_BITS


IMPORT = "import"


class ImportArtifact(_Artifact):
    """Somebody else's artifact, which is measured and judged as it is."""

    format: Literal["import"] = Field(
        default="import",
        description="File format: import (found out from the artifact itself). Default: import.",
    )
    path: str = Field(
        alias="import",
        min_length=1,
        description="Folder of an artifact that was made elsewhere: AWQ (gemm), GPTQ (version 1), "
        "compressed-tensors (pack-quantized), 16-bit safetensors, or a graph for ONNX Runtime (model.onnx). "
        "Relative to the recipe. Margins by default are those of the bits that it is found to have.",
    )

    @property
    def bits(self) -> int:
        """Bits whose margins hold by default until it has been looked at: the tightest."""
        return HALF_BITS


def _format(entry: object) -> object:
    """Which section an entry is meant to be: what `format` says, or an import where that is named."""
    if isinstance(entry, Mapping):
        named = entry.get("format", IMPORT if IMPORT in entry else None)
        return "" if named is None and "format" in entry else named
    # What is no mapping is refused as such by any of them.
    return getattr(entry, "format", "awq") if isinstance(entry, Section) else "awq"


TorchArtifact = AwqArtifact | GptqArtifact | HfArtifact | ImportArtifact
"""Those whose weights torch runs to be measured; ONNX artifacts are graphs and run in ONNX Runtime."""
Artifact = Annotated[
    Annotated[AwqArtifact, Tag("awq")]
    | Annotated[GptqArtifact, Tag("gptq")]
    | Annotated[HfArtifact, Tag("hf")]
    | Annotated[ImportArtifact, Tag(IMPORT)]
    | Annotated[OnnxArtifact, Tag("onnx")],
    Discriminator(_format),
]


def is_quantized_here(artifact: "Artifact") -> TypeGuard[QuantizedArtifact]:
    """Whether its codes are made by this recipe, to be run in torch: no export, graph or import."""
    return isinstance(artifact, QuantizedArtifact)


def repeated(names: list[object]) -> tuple[int, int] | None:
    """Find the first name that an earlier one already has: (its index, the earlier one's index)."""
    for index, name in enumerate(names):
        if name in names[:index]:
            return index, names.index(name)
    return None


def names_are_unique(artifacts: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
    """Refuse two artifacts of one name, for a pydantic validator."""
    found = repeated([artifact.name for artifact in artifacts])
    if found is not None:
        raise PydanticCustomError(
            "repeated_name",
            "the name is that of artifacts[{first}], too",
            {"index": found[0], "first": found[1]},
        )
    return artifacts


def codes_are_there(artifacts: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
    """Refuse `codes_from` where ONNX Runtime cannot take what it names, for a pydantic validator."""
    named = {artifact.name: artifact for artifact in artifacts}
    for index, artifact in enumerate(artifacts):
        if not isinstance(artifact, OnnxArtifact) or artifact.codes_from is None:
            continue
        donor = named.get(artifact.codes_from)
        why = _unfit(donor)
        if why:
            raise PydanticCustomError(
                "unfit_codes", "{name} {why}", {"index": index, "name": artifact.codes_from, "why": why}
            )
    return artifacts


def _unfit(donor: Artifact | None) -> str:
    if donor is None:
        return "is no artifact of this recipe"
    if not isinstance(donor, QuantizedArtifact):
        return f"has no codes: its format is {donor.format}"
    if donor.bits != ONNX_BITS:
        return f"has codes of {donor.bits} bits; w4-block takes {ONNX_BITS}"
    if donor.group_size == -1:
        return "has one group for a whole row; w4-block takes groups of 32, 64 or 128"
    if isinstance(donor, GptqArtifact) and donor.desc_act and not donor.static_groups:
        return "has groups that are not consecutive inputs (desc_act); set static_groups"
    return ""
