"""What a recipe may ask of an artifact beside its loss on text, resolved for the gate stage."""

from pydantic import BaseModel, ConfigDict, Field


class _Margin(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TaskMargin(_Margin):
    """What a task's score may lose.

    Attributes:
        task: Its name.
        max_drop: Largest acceptable drop, absolute.
        required: Whether the artifact's verdict depends on it.
    """

    task: str
    max_drop: float = Field(ge=0, allow_inf_nan=False)
    required: bool


class GenerationMargin(_Margin):
    """How much of the generated text has to stay the same.

    Attributes:
        min_identical: Smallest acceptable share of prompts with identical tokens; None where not judged.
        required: Whether the artifact's verdict depends on it.
    """

    min_identical: float | None = Field(ge=0, le=1)
    required: bool


class CustomMargin(_Margin):
    """What a score of a scorer of one's own may lose.

    Attributes:
        name: The criterion's name.
        max_drop: Largest acceptable drop of the mean, in the score's unit.
        higher_is_better: Its direction.
        required: Whether the artifact's verdict depends on it.
    """

    name: str
    max_drop: float = Field(ge=0, allow_inf_nan=False)
    higher_is_better: bool
    required: bool


class DriftMargin(_Margin):
    """How far production text may be from calibration text.

    Attributes:
        max_js: Largest acceptable Jensen-Shannon divergence of their tokens beyond chance, bits.
        required: Whether the artifact's verdict depends on it.
    """

    max_js: float = Field(ge=0, le=1)
    required: bool


class Asked(_Margin):
    """Margins of what was asked for.

    Attributes:
        tasks: Of tasks.
        generation: Of generated text; None where there is none.
        identity: Whether the artifact's verdict depends on what is around the weights; None where that is not
            compared.
        custom: Of scorers of one's own.
        drift: Of production text; None where that is not judged.
    """

    tasks: tuple[TaskMargin, ...] = ()
    generation: GenerationMargin | None = None
    identity: bool | None = None
    custom: tuple[CustomMargin, ...] = ()
    drift: DriftMargin | None = None
