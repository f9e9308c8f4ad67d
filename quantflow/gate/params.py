"""What the gate stage is asked."""

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from quantflow.measure.speed_value import SpeedMetric
from quantflow.pipeline.stage import StageParams


class SpeedMargin(BaseModel):
    """What an artifact's speed has to be.

    Attributes:
        min_speedup: Smallest acceptable ratio to the baseline's speed; 1.2 is a fifth faster.
        metric: Which speed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_speedup: PositiveFloat
    metric: SpeedMetric


class MemoryMargins(BaseModel):
    """What memory an artifact may take while it is served; None is no limit.

    Attributes:
        max_ratio: Largest acceptable ratio of its peak to the baseline's.
        max_bytes: Largest acceptable peak.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_ratio: PositiveFloat | None
    max_bytes: PositiveInt | None


class GateParams(StageParams):
    """Margins of one artifact's criteria.

    Attributes:
        artifact: Name of the artifact in the recipe.
        max_increase: Largest acceptable relative increase of perplexity, a fraction (0.03 is +3 %).
        max_mean_kl: Largest acceptable mean KL(baseline ‖ artifact), nats per token.
        speed: Margin of speed; None where it is not judged.
        memory: Margins of memory; None where it is not judged.
        census_required: Whether a unit of an ONNX artifact that ONNX Runtime computes otherwise than it is
            stored fails it.
    """

    artifact: str
    max_increase: float = Field(ge=0, allow_inf_nan=False)
    max_mean_kl: float = Field(ge=0, allow_inf_nan=False)
    speed: SpeedMargin | None = None
    memory: MemoryMargins | None = None
    census_required: bool = True
