"""The section of a recipe about how far production may have moved from what is calibrated and judged on."""

from typing import Annotated

from pydantic import Field

from quantflow.recipe.section import Section


class DriftLimit(Section):
    """How far the text that is read in production may be from calibration text."""

    max_js: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        description="Largest acceptable Jensen-Shannon divergence of the token distributions of calibration "
        "documents and of data.reference, in bits, beyond what chance gives samples of their sizes: 0 where "
        "both are alike, 1 where they have no token in common."
    )
    required: bool = Field(
        default=True, description="Whether the verdict depends on it; else it only advises. Default: true."
    )
