"""What the gate says of a criterion and of an artifact."""

from pydantic import BaseModel, ConfigDict

from quantflow.gate.level import Level
from quantflow.gate.sequential import Saving
from quantflow.gate.verdict import Verdict

EVERYTHING = "all"
"""The slice that is the whole of the evaluation data."""


class CriterionResult(BaseModel):
    """One criterion's verdict and every figure behind it.

    Attributes:
        artifact: The artifact judged.
        name: The criterion's key in the recipe's gate, e.g. `perplexity` or `kl`; `baseline` where it is the
            baseline that nothing can be held against.
        slice: The part of the evaluation data it concerns; `all` for the whole.
        metric: What is measured, e.g. `perplexity`, `kl_mean`, `kl_p99`, `top1_agreement` or `nll` (nats per
            token).
        baseline: The baseline's value of the metric; None for KL, which is measured against it.
        value: The artifact's value of the metric.
        delta: What is held against the margin, as a loss, so that more is worse: the relative increase of
            perplexity (fraction), the KL, the share of positions without agreement. Of speed alone it is a
            gain.
        ci_low: Lower end of delta's 90 % interval, a one-sided 95 % bound; None where it has no such end.
        ci_high: Upper end of delta's 90 % interval, a one-sided 95 % bound.
        margin: Largest acceptable delta; an improvement never fails.
        n: Scored positions, or items.
        n_clusters: Documents, or groups of items, they come from.
        noise_floor: What the metric says of the baseline against itself run another way, where known.
        verdict: The criterion's verdict.
        required: Whether the artifact's verdict depends on it.
        reason: The verdict in one plain sentence, with its figures.
        needed_clusters: Where inconclusive, documents that would decide at this effect and spread; None where
            no number would (the effect equals the margin) or where it cannot be known.
        detectable: The smallest delta that this sample would have told from none, with a power of 80 %.
        p_fail: One-sided p of the hypothesis that delta is within its margin.
        holm_p: The same, corrected for the number of criteria that the artifact was judged by (Holm).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    artifact: str
    name: str
    slice: str = EVERYTHING
    metric: str
    baseline: float | None = None
    value: float | None = None
    delta: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    margin: float
    n: int = 0
    n_clusters: int = 0
    noise_floor: float | None = None
    verdict: Verdict
    required: bool = True
    reason: str
    needed_clusters: int | None = None
    detectable: float | None = None
    p_fail: float | None = None
    holm_p: float | None = None

    @property
    def label(self) -> str:
        """What tells it from others of its artifact: `perplexity`, `kl/kl_p99[de]`, `tasks/acc[gsm8k]`."""
        metric = "" if self.metric == self.name else f"/{self.metric}"
        return f"{self.name}{metric}" if self.slice == EVERYTHING else f"{self.name}{metric}[{self.slice}]"


class LevelCheck(BaseModel):
    """Whether an artifact reaches one level.

    Attributes:
        level: The level.
        reached: Whether it does; None where the evidence does not tell.
        reason: Why, in one plain sentence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: Level
    reached: bool | None
    reason: str


class Lossless(BaseModel):
    """The highest level that an artifact reaches.

    Attributes:
        level: The level; None where it reaches none.
        checks: Every level, the strictest first.
        sentence: The finding in words that may be quoted by themselves.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: Level | None
    checks: tuple[LevelCheck, ...]
    sentence: str


class GateResult(BaseModel):
    """What the gate says of one artifact.

    Attributes:
        artifact: The artifact judged.
        criteria: Every criterion's result.
        verdict: The worst verdict of the required criteria; inconclusive where there are none.
        reason: The verdict in plain words, from the criteria that decided it.
        lossless: The level of lossless that it reaches; None where samples could not be paired.
        saving: What stopping early saved; None where documents were measured in one go.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    artifact: str
    criteria: tuple[CriterionResult, ...]
    verdict: Verdict
    reason: str
    lossless: Lossless | None = None
    saving: Saving | None = None
