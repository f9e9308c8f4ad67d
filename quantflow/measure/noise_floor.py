"""What every metric says of the baseline against itself, run in another way: no smaller effect is one."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from quantflow.measure.measurement import Samples

NOISE_FILE = "noise.json"


class NoiseFloor(BaseModel):
    """The baseline beside itself in another composition of batches.

    Attributes:
        how: What was different, in plain words.
        perplexity: Relative change of perplexity, without its sign.
        kl_mean: Mean KL, nats per token.
        kl_p99: Its 99 % quantile.
        kl_max: Its largest value.
        nll_max: Largest change of a position's negative log-likelihood, nats.
        top1_differs: Share of positions at which the likeliest token differs.
        tokens: Scored positions.
        documents: Documents they come from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    how: str
    perplexity: float
    kl_mean: float
    kl_p99: float
    kl_max: float
    nll_max: float
    top1_differs: float
    tokens: int
    documents: int

    def of_metric(self, metric: str) -> float | None:
        """The floor of a criterion's metric, on the scale of its delta; None where it has none."""
        floors: Mapping[str, float] = {
            "perplexity": self.perplexity,
            "kl_mean": self.kl_mean,
            "kl_lower_bound": self.kl_mean,
            "kl_p99": self.kl_p99,
            "top1_agreement": self.top1_differs,
        }
        return floors.get(metric)


def noise_floor(how: str, baseline: Samples, again: Samples) -> NoiseFloor:
    """Sum up two measurements of one model at the same positions.

    Args:
        how: What was different the second time.
        baseline: The first.
        again: The second, with its KL from the first and its agreement.

    Raises:
        ValueError: The second was not measured beside the first.
    """
    if again.kl is None or again.top1 is None or again.nll.shape != baseline.nll.shape:
        raise ValueError("a noise floor needs both measurements at the same positions")
    change = again.nll - baseline.nll
    kl = np.maximum(again.kl, 0.0)  # rounding leaves some a little below
    return NoiseFloor(
        how=how,
        perplexity=float(np.expm1(abs(change.mean()))),
        kl_mean=float(kl.mean()),
        kl_p99=float(np.quantile(kl, 0.99)),
        kl_max=float(kl.max()),
        nll_max=float(np.abs(change).max()),
        top1_differs=float(np.mean(~again.top1)),
        tokens=kl.size,
        documents=int(np.unique(again.document).size),
    )


def save_noise(output: Path, floor: NoiseFloor) -> None:
    """Write noise.json."""
    text = json.dumps(floor.model_dump(mode="json"), indent=2, sort_keys=True, allow_nan=False)
    (output / NOISE_FILE).write_text(text + "\n", encoding="utf-8")


def load_noise(stage_output: Path) -> NoiseFloor:
    """Read what the noise stage wrote."""
    return NoiseFloor.model_validate_json((stage_output / NOISE_FILE).read_text(encoding="utf-8"))
