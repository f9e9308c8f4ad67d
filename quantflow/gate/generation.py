"""The criterion of generated text: how often both sides answer a prompt with the very same tokens."""

from quantflow.data.documents import MIN_DOCUMENTS
from quantflow.gate.asked import GenerationMargin
from quantflow.gate.result import CriterionResult
from quantflow.gate.verdict import Verdict
from quantflow.measure.generated import GenerationValue

NAME, METRIC = "generation", "identical_rate"


def generation_criterion(
    artifact: str, margin: GenerationMargin, value: GenerationValue | None
) -> CriterionResult | None:
    """Judge the share of identical answers; None where it is only shown.

    Args:
        artifact: Name of the artifact.
        margin: What is asked for.
        value: Both sides' texts; None where they cannot be compared.
    """
    if margin.min_identical is None:
        return None
    allowed = 1 - margin.min_identical
    if value is None:
        return CriterionResult(
            artifact=artifact,
            name=NAME,
            metric=METRIC,
            margin=allowed,
            verdict=Verdict.ERROR,
            required=margin.required,
            reason="The artifact was given other prompts than the baseline: their texts cannot be compared.",
        )
    few = value.documents < MIN_DOCUMENTS
    if few or value.ci_low <= margin.min_identical <= value.ci_high:
        verdict = Verdict.INCONCLUSIVE
    else:
        verdict = Verdict.PASS if value.ci_low > margin.min_identical else Verdict.FAIL
    return CriterionResult(
        artifact=artifact,
        name=NAME,
        metric=METRIC,
        baseline=value.noise_floor,
        value=value.identical,
        delta=1 - value.identical,
        ci_low=1 - value.ci_high,
        ci_high=1 - value.ci_low,
        margin=allowed,
        n=value.prompts,
        n_clusters=value.documents,
        noise_floor=None if value.noise_floor is None else 1 - value.noise_floor,
        verdict=verdict,
        required=margin.required,
        reason=_reason(value, margin.min_identical, verdict, few=few),
    )


def _reason(value: GenerationValue, wanted: float, verdict: Verdict, *, few: bool) -> str:
    floor = (
        "" if value.noise_floor is None else f"; {100 * value.noise_floor:.3g} % of the baseline with itself"
    )
    effect = (
        f"{100 * value.identical:.3g} % of {value.prompts} prompts are answered with the same tokens (90 % "
        f"interval {100 * value.ci_low:.3g} to {100 * value.ci_high:.3g} %{floor})"
    )
    limit = f"the {100 * wanted:.4g} % asked for"
    if verdict is Verdict.PASS:
        return f"{effect}: even the lower end is above {limit}."
    if verdict is Verdict.FAIL:
        return f"{effect}: even the upper end is below {limit}."
    if few:
        return (
            f"{effect}, but {value.documents} documents are too few to judge {limit}: take {MIN_DOCUMENTS}."
        )
    return f"{effect}: {limit} is within the interval; more prompts narrow it."
