"""What the remedy stage tried and took, for reports: read without torch."""

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

REMEDY_FILE = "remedy.json"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class RemedyTrial(_Record):
    """A whole model with one way to choose, measured.

    Attributes:
        name: Of the way, e.g. `minmax` or `by effect`.
        kl: Mean KL(lossless ‖ this) on the selection windows, nats per token, emulated.
        kl_estimated: Sum of the units' estimates; None where they were not made.
        floating_share: Elements of linear layers in floating point over all of them.
        twice_share: Elements of linear layers whose inputs are multiplied in two steps over all of them.
        taken: Whether this is what the artifact gets.
    """

    name: str
    kl: float
    kl_estimated: float | None
    floating_share: float
    twice_share: float
    taken: bool = False


class UnitRemedy(_Record):
    """What was done for a unit.

    Attributes:
        unit: Its full name.
        exponent: α of SmoothQuant; 0 for none.
        channels: Input channels apart in floating point.
        twice: Whether its input is multiplied in two steps, what the first leaves in the second.
        range: How the range of its input was found; None where its input is not quantized.
        low: What the least code of the input stands for.
        high: What the largest code stands for.
        kl: Estimated KL of the unit so, nats per token; None where it was not estimated.
        kl_minmax: The same as it came, with MinMax ranges and nothing else.
    """

    unit: str
    exponent: float
    channels: int
    twice: bool
    range: Literal["minmax", "percentile", "mse", "entropy"] | None
    low: float | None
    high: float | None
    kl: float | None
    kl_minmax: float | None


class RemedyRecord(_Record):
    """All that was tried.

    Attributes:
        method: `w8a8` or `int8`.
        reduced: Whether weights use no more codes than processors without VNNI can add up.
        max_floating: Share of elements that was allowed to be in floating point.
        floating_share: That of what was taken.
        tokens: Selection tokens of estimates and trials; 0 where there were none.
        trials: Each whole model that was measured.
        units: What was taken, unit by unit.
        forwards: Step → whole forwards over the selection tokens.
    """

    method: Literal["w8a8", "int8"]
    reduced: bool
    max_floating: float
    floating_share: float
    tokens: int
    trials: tuple[RemedyTrial, ...]
    units: tuple[UnitRemedy, ...]
    forwards: dict[str, float]


def save_remedy_record(output: Path, record: RemedyRecord) -> None:
    """Write remedy.json."""
    text = json.dumps(record.model_dump(mode="json"), indent=1, sort_keys=True)
    (output / REMEDY_FILE).write_text(text + "\n", encoding="utf-8")


def load_remedy_record(stage_output: Path) -> RemedyRecord:
    """Read what the remedy stage wrote."""
    return RemedyRecord.model_validate_json((stage_output / REMEDY_FILE).read_text(encoding="utf-8"))
