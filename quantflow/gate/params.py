"""What the gate stage is asked."""

from pydantic import Field

from quantflow.pipeline.stage import StageParams


class GateParams(StageParams):
    """Margins of one artifact's criteria.

    Attributes:
        artifact: Name of the artifact in the recipe.
        max_increase: Largest acceptable relative increase of perplexity, a fraction (0.03 is +3 %).
        max_mean_kl: Largest acceptable mean KL(baseline ‖ artifact), nats per token.
    """

    artifact: str
    max_increase: float = Field(ge=0, allow_inf_nan=False)
    max_mean_kl: float = Field(ge=0, allow_inf_nan=False)
