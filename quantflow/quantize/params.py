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
    """

    group_sizes: Mapping[str, int]
    window_lengths: Mapping[str, int]


class QuantizeParams(StageParams):
    """Parameters of the quantize stage.

    Attributes:
        method: Algorithm that chooses the codes.
        bits: Width of a code.
        group_size: Input channels that share a scale and a zero point.
        device: `cpu` or `cuda`.
        calibration_dtype: What the products of the calibration forward are computed in.
        batch_tokens: Calibration tokens that pass a block at once, at most (at least one window does).
    """

    method: Literal["awq"]
    bits: Literal[4]
    group_size: int = Field(gt=0)
    device: Literal["cpu", "cuda"]
    calibration_dtype: Literal["float32", "bfloat16"] = "float32"
    batch_tokens: int = Field(gt=0)
