"""What the assemble stage needs to know, for each format."""

from collections.abc import Mapping
from typing import Literal

from quantflow.pipeline.stage import StageParams
from quantflow.quantize.params import Scheme


class AssembleParams(StageParams):
    """Parameters of the assemble stage of a quantized artifact.

    Attributes:
        name: The artifact's name.
        format: Layout on disk.
        scheme: How its codes were chosen.
        keep: Names or patterns of units that stay as they are, e.g. `model.layers.0.down` or `*.down`; of no
            effect where an assignment says which.
        written: Whether the stage that the assignment comes from wrote the artifact with these codes.
    """

    name: str
    format: Literal["awq", "gptq"]
    scheme: Scheme
    keep: tuple[str, ...] = ()
    written: bool = False


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


class ImportParams(StageParams):
    """Parameters of the assemble stage of somebody else's artifact.

    Attributes:
        name: The artifact's name.
        folder: Where it lies.
        files: Names of its files → where they are.
    """

    name: str
    folder: str
    files: Mapping[str, str]
