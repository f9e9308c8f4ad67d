"""Which unit got which precision, why, and what that came to: read without torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from quantflow.gate.verdict import Verdict

ASSIGNMENT_FILE = "assignment.json"

Policy = Literal["budget", "threshold", "top_k", "search"]
StoppedBy = Literal["holds", "max_spared", "max_rounds", "time_limit", "nothing_left"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Decision(_Record):
    """One unit's precision and the reason for it.

    Attributes:
        unit: Full name, e.g. `model.layers.0.down`.
        precision: Id of a scheme, or the source's dtype.
        spared: Whether it is not in the artifact's own precision.
        reason: In one plain sentence.
        kl_quantized: What it costs in the artifact's own precision, nats per token; None where it was not
            scanned.
        kl: What it costs as decided.
        weights: Elements of its weights.
        bytes_quantized: Of its weights in the artifact's own precision.
        bytes: Of its weights as decided.
    """

    unit: str
    precision: str
    spared: bool
    reason: str
    kl_quantized: float | None
    kl: float | None
    weights: int
    bytes_quantized: int
    bytes: int


class FrontierPoint(_Record):
    """What sparing the best unit, then the next, comes to.

    Attributes:
        unit: What this point spares beyond the one before; empty where nothing is spared.
        precision: What that unit gets.
        units: How many units are spared.
        bytes: Of the artifact's tensors.
        spared: Share of the weights that the artifact would otherwise quantize.
        kl: Sum of the units' KL, nats per token.
    """

    unit: str
    precision: str
    units: int
    bytes: int
    spared: float
    kl: float


class NextUnit(_Record):
    """What one more unit would buy.

    Attributes:
        unit: The one that takes away most KL per weight beyond what is spared.
        precision: What it would get.
        kl: What it would take away, nats per token.
        bytes: What it would cost.
    """

    unit: str
    precision: str
    kl: float
    bytes: int


class MixKl(_Record):
    """An artifact as written, read back and measured on the selection documents, beside the sum of its parts.

    Attributes:
        units: How many units are spared.
        spared: Share of the weights that the artifact would otherwise quantize.
        bytes: Of its files.
        kl: Mean KL from the lossless model, nats per token.
        sum_of_parts: Sum of what the scan found of its quantized units.
        additivity_ratio: `kl` over `sum_of_parts`; None where that is 0.
    """

    units: int
    spared: float
    bytes: int
    kl: float
    sum_of_parts: float
    additivity_ratio: float | None


class RoundCriterion(_Record):
    """A criterion of the gate on the selection documents.

    Attributes:
        name: As in the recipe's gate.
        metric: What is measured, e.g. `kl_mean`.
        slice: The part of the documents that it concerns; `all` for the whole.
        delta: What is held against the margin.
        ci_low: Lower end of its 90 % interval.
        ci_high: Upper end of it.
        bound: What the margin is held against: wide enough that as many other documents would agree.
        margin: Largest acceptable.
        verdict: Of the criterion itself.
        holds: Whether `bound` is within the margin.
    """

    name: str
    metric: str
    slice: str
    delta: float | None
    ci_low: float | None
    ci_high: float | None
    bound: float | None
    margin: float
    verdict: Verdict
    holds: bool


class SearchRound(_Record):
    """One candidate of a search.

    Attributes:
        number: 0 for the artifact with nothing spared.
        added: Units spared beyond the round before, the best first.
        mix: What was measured.
        criteria: The gate's criteria on the selection documents.
        holds: Whether all of them hold with room.
        best: Whether it was the best candidate until then.
    """

    number: int
    added: tuple[str, ...]
    mix: MixKl
    criteria: tuple[RoundCriterion, ...]
    holds: bool
    best: bool


class AssignmentRecord(_Record):
    """The assignment of an artifact.

    Attributes:
        artifact: Its name.
        policy: How units were chosen.
        settings: The policy's numbers.
        ladder: Precisions that a unit may have, the artifact's own first.
        decisions: Of every unit that the artifact could quantize, in the order of the model.
        frontier: From nothing spared on.
        plain: The artifact with nothing spared; of a search for W8A8, INT8 as it comes, without remedies.
        mix: The artifact as decided, as measured; `plain` where nothing is spared or remedied.
        next: What one more unit would buy; None where none takes anything away.
        rolled_back: What was decided at first and measured worse than nothing spared; None where none was.
        rounds: Of a search; empty without one.
        stopped_by: Why a search ended; None without one.
    """

    artifact: str
    policy: Policy
    settings: Mapping[str, float]
    ladder: tuple[str, ...]
    decisions: tuple[Decision, ...]
    frontier: tuple[FrontierPoint, ...]
    plain: MixKl
    mix: MixKl
    next: NextUnit | None
    rolled_back: MixKl | None = None
    rounds: tuple[SearchRound, ...] = ()
    stopped_by: StoppedBy | None = None

    @property
    def spared(self) -> tuple[Decision, ...]:
        """The units that are not in the artifact's own precision."""
        return tuple(decision for decision in self.decisions if decision.spared)

    @property
    def remedied(self) -> bool:
        """Whether it differs from `plain`, INT8 as it comes, by remedies alone."""
        return not self.spared and self.mix != self.plain


def save_assignment(output: Path, record: AssignmentRecord) -> None:
    """Write assignment.json."""
    text = json.dumps(record.model_dump(mode="json"), indent=1, sort_keys=True, allow_nan=False)
    (output / ASSIGNMENT_FILE).write_text(text + "\n", encoding="utf-8")


def load_assignment(stage_output: Path) -> AssignmentRecord:
    """Read what the assign or the search stage wrote."""
    return AssignmentRecord.model_validate_json((stage_output / ASSIGNMENT_FILE).read_text(encoding="utf-8"))
