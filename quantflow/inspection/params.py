"""What the inspect stage needs to know."""

from typing import Literal

from quantflow.pipeline.stage import StageParams


class InspectParams(StageParams):
    """Parameters of the inspect stage.

    Attributes:
        device: Where the model is tried.
        allow_suspect: Whether to go on with a model that looks broken.
    """

    device: Literal["cpu", "cuda"]
    allow_suspect: bool
