"""The KL criterion where a runtime tells the likeliest tokens only: what can fail, and never passes."""

from dataclasses import replace

from quantflow.gate.kl import kl_criterion
from quantflow.gate.result import CriterionResult
from quantflow.gate.verdict import Verdict
from quantflow.measure.measurement import Samples

METRIC = "kl_lower_bound"


def kl_bound_criterion(artifact: str, measured: Samples, max_mean_kl: float) -> CriterionResult:
    """Judge the lower bound of the mean KL(baseline ‖ artifact).

    Args:
        artifact: Name of the artifact.
        measured: Samples of the artifact, with `kl_at_least`.
        max_mean_kl: Margin, nats per token.
    """
    judged = kl_criterion(artifact, replace(measured, kl=measured.kl_at_least), max_mean_kl)
    if judged.verdict is Verdict.ERROR or judged.delta is None:
        return judged.model_copy(update={"metric": METRIC})
    if judged.verdict is Verdict.FAIL:
        reason = f"{judged.reason} The runtime gives a lower bound of the KL: the whole is no smaller."
        return judged.model_copy(update={"metric": METRIC, "reason": reason})
    reason = (
        f"Mean KL in nats per token is at least {judged.delta:.4g}: the runtime gives this lower bound only, "
        f"which can fail the margin of {max_mean_kl:.4g} and never pass it."
    )
    update = {
        "metric": METRIC,
        "verdict": Verdict.INCONCLUSIVE,
        "reason": reason,
        "needed_clusters": None,
    }
    return judged.model_copy(update=update)
