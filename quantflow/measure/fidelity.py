"""How near the lossless graph is to the model that it was made of: read without torch."""

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

FIDELITY_FILE = "fidelity.json"


class Fidelity(BaseModel):
    """The lossless graph in ONNX Runtime beside the source's own forward in torch.

    Attributes:
        precision: What the graph computes in.
        split: Documents that the windows are of.
        windows: How many.
        tokens: Positions compared.
        max_logit_difference: Largest difference of a logit, without its sign.
        kl_mean: Mean KL(torch ‖ graph), nats per token.
        kl_max: Its largest value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    precision: Literal["fp32", "fp16"]
    split: Literal["selection", "evaluation"]
    windows: int
    tokens: int
    max_logit_difference: float
    kl_mean: float
    kl_max: float


def save_fidelity(output: Path, fidelity: Fidelity) -> None:
    """Write fidelity.json."""
    text = json.dumps(fidelity.model_dump(mode="json"), indent=2, sort_keys=True, allow_nan=False)
    (output / FIDELITY_FILE).write_text(text + "\n", encoding="utf-8")


def load_fidelity(stage_output: Path) -> Fidelity:
    """Read what the stage wrote."""
    return Fidelity.model_validate_json((stage_output / FIDELITY_FILE).read_text(encoding="utf-8"))
