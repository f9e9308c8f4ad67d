"""What the data stage is asked."""

import math
from typing import Self

from pydantic import Field, model_validator

from quantflow.pipeline.stage import StageParams


class DataParams(StageParams):
    """Resolved parameters of the data stage; the content of `files` travels in the stage's `external`.

    Attributes:
        files: Absolute paths of JSONL files.
        calibration_windows: Calibration windows wanted.
        calibration_length: Tokens of every calibration window.
        evaluation_length: Most tokens of a selection or evaluation window.
        calibration_share: Fraction of documents for calibration.
        selection_share: Fraction of documents for selection.
        evaluation_share: Fraction of documents for evaluation; the three sum to 1.
        seed: Seed of the split, of the order of packing and of the draw of windows.
    """

    files: tuple[str, ...]
    calibration_windows: int = Field(ge=1)
    calibration_length: int = Field(ge=2)
    evaluation_length: int = Field(ge=2)
    calibration_share: float = Field(gt=0, lt=1)
    selection_share: float = Field(ge=0, lt=1)
    evaluation_share: float = Field(gt=0, lt=1)
    seed: int

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> Self:
        total = self.calibration_share + self.selection_share + self.evaluation_share
        if not math.isclose(total, 1, abs_tol=1e-6):
            raise ValueError(f"the shares sum to {total}, not to 1")
        return self
