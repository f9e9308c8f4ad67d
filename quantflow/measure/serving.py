"""The speed stage's result on disk."""

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from quantflow.measure.measurement import RuntimeInfo
from quantflow.measure.speed_value import MemoryValue, SpeedValue

SERVING_FILE = "serving.json"


class Serving(BaseModel):
    """What the speed stage found.

    Attributes:
        runtime: How the artifact was run.
        baseline_runtime: How the baseline was run.
        speed: Speed of both.
        memory: Memory of both.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    runtime: RuntimeInfo
    baseline_runtime: RuntimeInfo
    speed: SpeedValue
    memory: MemoryValue


def save_serving(output: Path, serving: Serving) -> None:
    """Write serving.json."""
    text = json.dumps(serving.model_dump(mode="json"), indent=2, sort_keys=True, allow_nan=False)
    (output / SERVING_FILE).write_text(text + "\n", encoding="utf-8")


def load_serving(stage_output: Path) -> Serving:
    """Read what the speed stage wrote."""
    return Serving.model_validate_json((stage_output / SERVING_FILE).read_text(encoding="utf-8"))
