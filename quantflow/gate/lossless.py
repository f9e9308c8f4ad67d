"""How lossless an artifact is: three levels, the highest that is reached, and what the next one lacks."""

import math

import numpy as np
from pydantic import BaseModel, ConfigDict
from scipy.special import betaincinv

from quantflow.data.documents import MIN_DOCUMENTS
from quantflow.gate.level import LEVELS, MEANINGS, Level
from quantflow.gate.result import CriterionResult, LevelCheck, Lossless
from quantflow.gate.statistics import ONE_SIDED_LEVEL
from quantflow.gate.verdict import Verdict
from quantflow.measure.generated import GenerationValue
from quantflow.measure.measurement import Samples
from quantflow.measure.noise_floor import NoiseFloor

NOISE_ROOM = 2.0
"""By how much the largest difference may exceed that of the noise floor, which fewer positions gave: of 20
times as many normal numbers the largest is larger by a third."""

FLOAT32_ROOM = 1e-5
"""Nats by which a log-likelihood may differ in any case: what rounding in float32 leaves of logits of tens
after some tens of layers, where the noise floor happened to be none."""

IDENTICAL_OUTPUTS = 500
"""Fewest outputs that "output-identical" is claimed on."""

IDENTICAL_ROOM = 0.01
"""How far the rate of identical outputs may be below that of the baseline against itself."""


class IdenticalOutputs(BaseModel):
    """Greedy outputs that are the same, token by token.

    Attributes:
        identical: Outputs equal to the baseline's.
        n: Outputs compared.
        documents: Documents that their prompts come from, near duplicates counted once; None where each has
            one of its own. Outputs after prompts of one document are no independent evidence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    identical: int
    n: int
    documents: int | None = None

    @property
    def rate(self) -> float:
        """Share of identical outputs."""
        return self.identical / self.n

    @property
    def at_least(self) -> float:
        """One-sided 95 % lower bound of the rate (Clopper & Pearson 1934)."""
        if self.identical == 0:
            return 0.0
        independent = self.n if self.documents is None else min(self.documents, self.n)
        identical = self.rate * independent
        return float(betaincinv(identical, independent - identical + 1, 1 - ONE_SIDED_LEVEL))


def identical_outputs(
    value: GenerationValue | None,
) -> tuple[IdenticalOutputs | None, IdenticalOutputs | None]:
    """How often greedy outputs of both models, and of the baseline and itself, are the same.

    Args:
        value: Both sides' outputs; None where none were made.
    """
    if value is None:
        return None, None

    def of(rate: float) -> IdenticalOutputs:
        return IdenticalOutputs(
            identical=round(rate * value.prompts), n=value.prompts, documents=value.documents
        )

    return of(value.identical), None if value.noise_floor is None else of(value.noise_floor)


def find_level(
    verdict: Verdict,
    baseline: Samples,
    measured: Samples,
    noise: NoiseFloor | None,
    outputs: IdenticalOutputs | None = None,
    outputs_again: IdenticalOutputs | None = None,
    *,
    all_measured: bool = True,
    tensors_same: bool = False,
) -> Lossless:
    """Find the highest level; each takes that no required criterion is missed.

    Args:
        verdict: The artifact's, over its required criteria.
        baseline: Samples of the lossless model.
        measured: Samples of the artifact at the same positions, with the exact KL if there is one.
        noise: What the baseline says of itself; None where it was not measured.
        outputs: The artifact's greedy outputs beside the baseline's; None where none were made.
        outputs_again: The baseline's beside its own in another composition of batches.
        all_measured: Whether the samples are of all evaluation documents, which L1 takes.
        tensors_same: Whether the artifact's tensors are known to be the baseline's.
    """
    margin = _within_margins(verdict)
    checks = (
        _with(
            margin,
            _equal_tensors(
                _equal_logits(baseline, measured, noise, all_measured=all_measured), same=tensors_same
            ),
        ),
        _with(margin, _identical_outputs(outputs, outputs_again)),
        margin,
    )
    level = next((check.level for check in checks if check.reached), None)
    return Lossless(level=level, checks=checks, sentence=_sentence(level, checks))


def level_criterion(artifact: str, found: Lossless, required: Level) -> CriterionResult:
    """Judge `gate.require`: whether the artifact reaches a level, or a stricter one.

    Args:
        artifact: Name of the artifact.
        found: What it reaches.
        required: The level asked for.
    """
    wanted = LEVELS.index(required)
    candidates = found.checks[: wanted + 1]
    if any(check.reached for check in candidates):
        verdict = Verdict.PASS
    elif any(check.reached is None for check in candidates):
        verdict = Verdict.INCONCLUSIVE
    else:
        verdict = Verdict.FAIL
    reached = len(LEVELS) if found.level is None else LEVELS.index(found.level)
    return CriterionResult(
        artifact=artifact,
        name="require",
        metric="lossless_level",
        value=float(reached + 1),
        delta=float(reached - wanted),
        margin=0.0,
        verdict=verdict,
        reason=f"{required} ({MEANINGS[required]}) is required. {found.sentence}",
    )


def _within_margins(verdict: Verdict) -> LevelCheck:
    reasons = {
        Verdict.PASS: "It is non-inferior on every required criterion.",
        Verdict.FAIL: "A required criterion is missed.",
        Verdict.INCONCLUSIVE: "A required criterion is not decided.",
        Verdict.ERROR: "A required criterion could not be judged.",
    }
    reached = {Verdict.PASS: True, Verdict.FAIL: False}.get(verdict)
    return LevelCheck(level="L3", reached=reached, reason=reasons[verdict])


def _with(margin: LevelCheck, check: LevelCheck) -> LevelCheck:
    """A stricter level, which is not reached where the criteria are not."""
    if not check.reached or margin.reached:
        return check
    return LevelCheck(
        level=check.level, reached=margin.reached, reason=f"{check.reason} But: {margin.reason}"
    )


def _equal_logits(
    baseline: Samples, measured: Samples, noise: NoiseFloor | None, *, all_measured: bool
) -> LevelCheck:
    def check(reached: bool | None, reason: str) -> LevelCheck:
        return LevelCheck(level="L1", reached=reached, reason=reason)

    if measured.kl is None or measured.nll.shape != baseline.nll.shape:
        return check(None, "The runtime does not give whole distributions, so equal logits cannot be shown.")
    if noise is None:
        return check(None, "The runtime's own noise was not measured.")
    change, kl = float(np.abs(measured.nll - baseline.nll).max()), float(measured.kl.max())
    mean = float(measured.kl.mean())
    if not (math.isfinite(change) and math.isfinite(kl)):
        return check(False, "Its likelihoods are not finite numbers.")
    allowed = max(NOISE_ROOM * noise.nll_max, FLOAT32_ROOM), max(NOISE_ROOM * noise.kl_max, FLOAT32_ROOM)
    figures = (
        f"the largest change of a log-likelihood is {change:.2g} nats and the largest KL {kl:.2g}, where the "
        f"baseline's own noise allows {allowed[0]:.2g} and {allowed[1]:.2g}"
    )
    # In bfloat16 the largest is that of a rare position: an artifact that is off by it everywhere is no copy.
    mean_allowed = max(NOISE_ROOM * noise.kl_mean, FLOAT32_ROOM)
    if mean > mean_allowed:
        figures += f"; the mean KL is {mean:.2g}, where it allows {mean_allowed:.2g}"
        return check(False, f"Its logits are not the baseline's: {figures}.")
    if change > allowed[0] or kl > allowed[1]:
        return check(False, f"Its logits are not the baseline's: {figures}.")
    # One difference shows that logits differ, however few were looked at; that none does takes many.
    if not all_measured:
        return check(None, "Measuring stopped before all documents were measured, and it takes them all.")
    if np.unique(measured.document).size < MIN_DOCUMENTS:
        return check(None, f"Fewer than {MIN_DOCUMENTS} documents were measured.")
    return check(True, f"Its logits are the baseline's within the runtime's own noise: {figures}.")


def _equal_tensors(logits: LevelCheck, *, same: bool) -> LevelCheck:
    """L1 by equal tensors, unless logits that were measured say otherwise: a file beside them may differ."""
    if not same:
        return logits
    if logits.reached is False:
        reason = f"{logits.reason} Its tensors are the baseline's, so that something around them differs."
        return LevelCheck(level="L1", reached=False, reason=reason)
    said = "Its tensors are the baseline's, bit by bit."
    return LevelCheck(level="L1", reached=True, reason=f"{said} {logits.reason}" if logits.reached else said)


def _identical_outputs(outputs: IdenticalOutputs | None, again: IdenticalOutputs | None) -> LevelCheck:
    def check(reached: bool | None, reason: str) -> LevelCheck:
        return LevelCheck(level="L2", reached=reached, reason=reason)

    if outputs is None:
        return check(None, f"No outputs were compared; it takes {IDENTICAL_OUTPUTS} or more.")
    if again is None:
        return check(None, "How often the baseline gives its own output again was not measured.")
    if outputs.n < IDENTICAL_OUTPUTS:
        return check(None, f"{outputs.n} outputs were compared; it takes {IDENTICAL_OUTPUTS} or more.")
    limit = again.rate - IDENTICAL_ROOM
    figures = (
        f"{100 * outputs.rate:.1f} % of {outputs.n} outputs are identical, {100 * outputs.at_least:.1f} % at "
        f"least; the baseline gives {100 * again.rate:.1f} % of its own again"
    )
    if outputs.at_least >= limit:
        return check(True, f"Its outputs are the baseline's as often as the baseline's own are: {figures}.")
    return check(False, f"Its outputs differ more often than by the baseline's own noise: {figures}.")


def _sentence(level: Level | None, checks: tuple[LevelCheck, ...]) -> str:
    by_level = {check.level: check for check in checks}
    if level is None:
        return f"It reaches no level of lossless. {by_level['L3'].reason}"
    reached = f"It reaches {level}, {MEANINGS[level]}. {by_level[level].reason}"
    if level == "L1":
        return reached
    missing = by_level[LEVELS[LEVELS.index(level) - 1]]
    lacks = f"For {missing.level}, {MEANINGS[missing.level]}, it lacks this: {missing.reason}"
    warning = " That is not lossless: it may lose what the margins allow." if level == "L3" else ""
    return f"{reached}{warning} {lacks}"
