"""What the gate stage is asked."""

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from quantflow.gate.asked import Asked
from quantflow.gate.level import Level
from quantflow.gate.margins import MarginName
from quantflow.measure.speed_value import SpeedMetric
from quantflow.pipeline.stage import StageParams

EACH_SLICE = "*"
"""Stands for every slice that has no margin of its own."""


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


class SliceMargin(BaseModel):
    """What an artifact may lose on one part of the evaluation data.

    Attributes:
        slice: The part, or `EACH_SLICE`.
        margin: Largest acceptable loss, on the criterion's scale.
        required: Whether the artifact's verdict depends on it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    slice: str
    margin: float = Field(ge=0, allow_inf_nan=False)
    required: bool


class GateParams(StageParams):
    """Margins of one artifact's criteria.

    Attributes:
        artifact: Name of the artifact in the recipe.
        defaults: Margins that are those of the bits that an import is found to have: the values here are
            replaced by them.
        max_increase: Largest acceptable relative increase of perplexity, a fraction (0.03 is +3 %).
        max_mean_kl: Largest acceptable mean KL(baseline ‖ artifact), nats per token.
        perplexity_required: Whether the artifact's verdict depends on perplexity.
        perplexity_slices: Margins of perplexity for parts of the evaluation data.
        kl_required: Whether it depends on what is judged of KL.
        kl_slices: Margins of the mean KL for parts of the evaluation data.
        max_p99: Largest acceptable 99 % quantile of KL, nats per token; None where it is not judged.
        min_top1_agreement: Smallest acceptable share of positions with the same likeliest token; None where
            it is not judged.
        require: Level of lossless that the artifact has to reach; None where none is asked for.
        speed: Margin of speed; None where it is not judged.
        memory: Margins of memory; None where it is not judged.
        census_required: Whether a unit of an ONNX artifact that ONNX Runtime computes otherwise than it is
            stored fails it.
        look_seed: Of the order of documents where they were measured look by look; None where in one go.
        asked: Margins of what is asked for beside loss on text, speed and memory.
    """

    artifact: str
    defaults: tuple[MarginName, ...] = ()
    max_increase: float = Field(ge=0, allow_inf_nan=False)
    max_mean_kl: float = Field(ge=0, allow_inf_nan=False)
    perplexity_required: bool = True
    perplexity_slices: tuple[SliceMargin, ...] = ()
    kl_required: bool = True
    kl_slices: tuple[SliceMargin, ...] = ()
    max_p99: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    min_top1_agreement: float | None = Field(default=None, ge=0, le=1)
    require: Level | None = None
    speed: SpeedMargin | None = None
    memory: MemoryMargins | None = None
    census_required: bool = True
    look_seed: int | None = None
    asked: Asked = Asked()
