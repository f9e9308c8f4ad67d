"""The sections of a recipe about criteria on the model's own distributions: perplexity and KL."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from quantflow.gate.margins import DEFAULT_MAX_INCREASE, DEFAULT_MAX_MEAN_KL
from quantflow.recipe.margins import by_bits
from quantflow.recipe.section import Section

Margin = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class PerplexitySlice(Section):
    """What perplexity may lose on one slice of the evaluation documents."""

    slice: str = Field(
        min_length=1, description='Name of the slice, or "*" for each that has no entry of its own.'
    )
    max_increase: Margin = Field(description="Largest relative increase of perplexity there, a fraction.")
    required: bool = Field(
        default=True, description="Whether the verdict depends on it; else it only advises. Default: true."
    )


class KlSlice(Section):
    """How far the distributions may move on one slice of the evaluation documents."""

    slice: str = Field(
        min_length=1, description='Name of the slice, or "*" for each that has no entry of its own.'
    )
    max_mean: Margin = Field(description="Largest mean KL there, nats per token.")
    required: bool = Field(
        default=True, description="Whether the verdict depends on it; else it only advises. Default: true."
    )


def _named_once(slices: tuple[PerplexitySlice, ...] | tuple[KlSlice, ...]) -> None:
    names = [entry.slice for entry in slices]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PydanticCustomError("slices", "the slice `{name}` has two margins", {"name": twice[0]})


class PerplexityMargin(Section):
    """What perplexity may lose."""

    max_increase: Margin | None = Field(
        default=None,
        description="Largest relative increase of perplexity over the baseline, a fraction (0.03 is 3 %). "
        f"Default: {by_bits(DEFAULT_MAX_INCREASE)}. What is exported here unquantized never gets more than "
        "its default.",
    )
    required: bool = Field(
        default=True,
        description="Whether the verdict depends on it; else it is judged and only advises. Default: true.",
    )
    slices: tuple[PerplexitySlice, ...] = Field(
        default=(),
        strict=False,
        description="Margins for slices of the evaluation documents, besides that for all. A slice of fewer "
        "than 30 documents is inconclusive. Default: [].",
    )

    @model_validator(mode="after")
    def _once(self) -> Self:
        _named_once(self.slices)
        return self


class KlMargin(Section):
    """How far the distributions may move."""

    max_mean: Margin | None = Field(
        default=None,
        description="Largest mean KL divergence of the artifact from the baseline, nats per token. "
        f"Default: {by_bits(DEFAULT_MAX_MEAN_KL)}. What is exported here unquantized never gets more than "
        "its default.",
    )
    max_p99: Margin | None = Field(
        default=None,
        description="Largest 99 % quantile of the KL over positions, nats per token: the mean does not show "
        "a few positions that are far off. Default: null, not judged.",
    )
    min_top1_agreement: Share | None = Field(
        default=None,
        description="Smallest share of positions at which artifact and baseline find the same token "
        "likeliest, a fraction. Default: null, not judged.",
    )
    required: bool = Field(
        default=True,
        description="Whether the verdict depends on these; else they only advise. Default: true.",
    )
    slices: tuple[KlSlice, ...] = Field(
        default=(),
        strict=False,
        description="Margins of the mean for slices of the evaluation documents, besides that for all. A "
        "slice of fewer than 30 documents is inconclusive. Default: [].",
    )
    runtime: Literal["torch"] | None = Field(
        default=None,
        description="Runtime to measure KL in where that of the other measurements gives a lower bound only: "
        "torch. Default: null, `runtime.name`.",
    )

    @model_validator(mode="after")
    def _once(self) -> Self:
        _named_once(self.slices)
        return self
