"""The artifacts a recipe can ask for: one section for each file format, told apart by `format`."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic_core import PydanticCustomError

from quantflow.recipe.section import Name, Section

HALF_BITS = 16  # of both dtypes that a lossless export may have


class _Artifact(Section):
    """What every artifact has."""

    name: Name = Field(
        description="Name of the artifact and of its folder: a-z, 0-9, `.`, `_`, `-`. Unique in the recipe."
    )


class AwqArtifact(_Artifact):
    """A quantized model in AutoAWQ's layout."""

    format: Literal["awq"] = Field(description="File format: awq (AutoAWQ's gemm layout).")
    method: Literal["awq"] = Field(
        default="awq", description="Quantization method: awq (activation-aware scales). Default: awq."
    )
    bits: Literal[4] = Field(description="Bits per weight: 4.")
    group_size: Literal[32, 64, 128] = Field(
        default=128,  # what AWQ models are published with and kernels are tuned for
        description="Input channels that share one scale and zero point: 32, 64 or 128. Has to divide the "
        "input width of every layer. Default: 128.",
    )


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


Artifact = Annotated[AwqArtifact | HfArtifact, Field(discriminator="format")]


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
