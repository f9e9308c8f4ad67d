"""How vLLM is run, resolved: what a stage's key and every measurement name."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt

ServedDtype = Literal["auto", "float32", "bfloat16", "float16"]


class ServingParams(BaseModel):
    """vLLM's pinned options.

    Attributes:
        environment: Name of the environment and a hash of the packages in it.
        device: Where it computes.
        dtype: What it computes in; `auto`, on a GPU only, is what `resolved_dtype` makes of it.
        cache_bytes: Size of the key-value cache; None for what the requests need.
        threads: Threads that it computes with on a CPU.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    environment: str
    device: Literal["cpu", "cuda"]
    dtype: ServedDtype
    cache_bytes: PositiveInt | None
    threads: PositiveInt


def resolved_dtype(params: ServingParams, source_dtype: str) -> str:
    """What baseline and artifact both compute in.

    A GPU multiplies both 16-bit types alike, so the source's own is kept there.

    Args:
        params: The pinned options.
        source_dtype: What the lossless model's weights are stored in.
    """
    if params.dtype != "auto":
        return params.dtype
    return "float16" if source_dtype == "float16" else "bfloat16"
