"""What the stages that measure the baseline and an artifact need to know."""

from pydantic import PositiveInt

from quantflow.pipeline.stage import StageParams


class BaselineParams(StageParams):
    """Resolved parameters of the baseline stage.

    Attributes:
        device: Where to compute: `cpu` or `cuda`.
        batch_tokens: About how many tokens, padding included, go through a block at once.
    """

    device: str
    batch_tokens: PositiveInt


class MeasureParams(StageParams):
    """Resolved parameters of an artifact's measure stage; batches are the baseline's.

    Attributes:
        device: Where to compute: `cpu` or `cuda`.
        batch_tokens: As in the baseline's parameters: other batches would be another measurement.
    """

    device: str
    batch_tokens: PositiveInt
