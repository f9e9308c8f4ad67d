"""The sections of a recipe about serving: margins for speed and memory, and how vLLM is run."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from quantflow.recipe.section import Section
from quantflow.runtime.params import ServedDtype

# More requests than a server of one machine is asked at once, and longer ones than any model's context.
MOST_REQUESTS, MOST_TOKENS = 4096, 131_072
# An interval from fewer rounds would be as wide as a guess; more than these no one waits for.
FEWEST_ROUNDS, MOST_ROUNDS = 3, 1000
GIB = 1 << 30

Tokens = Annotated[int, Field(ge=2, le=MOST_TOKENS)]
Ratio = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SpeedLimits(Section):
    """How fast an artifact has to be; measured where it is served, baseline and artifact taking turns."""

    min_speedup: Ratio | None = Field(
        default=None,
        description="Smallest acceptable ratio of the artifact's speed to the baseline's: 1.2 is a fifth "
        "faster. Default: null, measured and reported, not judged.",
    )
    metric: Literal["throughput", "time_to_first_token", "time_per_output_token"] = Field(
        default="throughput",
        description="Which speed is judged: throughput (tokens generated per second), time_to_first_token or "
        "time_per_output_token; all are reported. Default: throughput.",
    )
    concurrency: Annotated[
        tuple[Annotated[int, Field(ge=1, le=MOST_REQUESTS)], ...], Field(min_length=1, strict=False)
    ] = Field(
        default=(1, 8),
        description="Numbers of requests at a time in vLLM; at each of them the speed is measured and "
        "judged. Default: [1, 8].",
    )
    contexts: Annotated[tuple[Tokens, ...], Field(min_length=1, strict=False)] = Field(
        default=(128, 512),
        description="Tokens of the prompts of ONNX artifacts, which answer one request at a time; at each "
        "length the speed is measured and judged. Default: [128, 512].",
    )
    prompt_tokens: Tokens = Field(default=256, description="Tokens of every prompt in vLLM. Default: 256.")
    output_tokens: Tokens = Field(
        default=64, description="Tokens to generate for every request. Default: 64."
    )
    rounds: int = Field(
        default=5,
        ge=FEWEST_ROUNDS,
        le=MOST_ROUNDS,
        description="How often baseline and artifact are timed, one right after the other. Default: 5.",
    )


class MemoryLimits(Section):
    """How much memory serving an artifact may take at most; measured in vLLM, its cache included."""

    max_ratio: Ratio | None = Field(
        default=None,
        description="Largest acceptable ratio of the artifact's peak to the baseline's. Default: null.",
    )
    max_bytes: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="Largest acceptable peak, bytes. Default: null."
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.max_ratio is None and self.max_bytes is None:
            raise PydanticCustomError("memory", "there is no limit: name max_ratio, max_bytes or both")
        return self


class VllmOptions(Section):
    """How vLLM is run, wherever it is used."""

    dtype: ServedDtype = Field(
        default="auto",
        description="What baseline and artifact both compute in: float32, bfloat16, float16, or auto: "
        "bfloat16, float16 on a GPU for a model that is stored so, float32 on a CPU without AVX-512. "
        "Quantized weights run in 16 bits only. Default: auto.",
    )
    cache_gib: Annotated[float, Field(gt=0, le=1024, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Size of the key-value cache, GiB. Default: null, what the requests need.",
    )

    @property
    def cache_bytes(self) -> int | None:
        """The cache in bytes."""
        return None if self.cache_gib is None else round(self.cache_gib * GIB)
