"""What the assemble stage needs to know, for each format."""

from typing import Literal

from pydantic import Field

from quantflow.pipeline.stage import StageParams


class AssembleParams(StageParams):
    """Parameters of the assemble stage of a quantized artifact.

    Attributes:
        name: The artifact's name.
        format: Layout on disk.
        method: Algorithm that chose the codes, for the artifact's provenance.
        bits: Width of a code.
        group_size: Input channels that share a scale and a zero point.
    """

    name: str
    format: Literal["awq"]
    method: Literal["awq"] = "awq"
    bits: Literal[4]
    group_size: int = Field(gt=0)


class ExportParams(StageParams):
    """Parameters of the assemble stage of a lossless export.

    Attributes:
        name: The artifact's name.
        format: Layout on disk.
        dtype: What weights are stored in.
    """

    name: str
    format: Literal["hf"]
    dtype: Literal["float16", "bfloat16"]
