"""What the check and quantize stages need to know."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from quantflow.pipeline.stage import StageParams


class CheckParams(StageParams):
    """Parameters of the check stage.

    Attributes:
        group_sizes: Key of the recipe → input channels that share a scale.
        window_lengths: Key of the recipe → length of the windows it asks for, tokens.
        methods: Key of the recipe → algorithm that is to choose codes.
    """

    group_sizes: Mapping[str, int]
    window_lengths: Mapping[str, int]
    methods: Mapping[str, str] = Field(default_factory=dict)


class QuantizeParams(StageParams):
    """Parameters of the quantize stage.

    Attributes:
        method: Algorithm that chooses the codes.
        bits: Width of a code.
        group_size: Input channels that share a scale and a zero point.
        device: `cpu` or `cuda`.
        batch_tokens: Calibration tokens that pass a block at once, at most (at least one window does).
    """

    method: Literal["awq"]
    bits: Literal[4]
    group_size: int = Field(gt=0)
    device: Literal["cpu", "cuda"]
    batch_tokens: int = Field(gt=0)
