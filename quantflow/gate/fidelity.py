"""The criterion of the graph: what ONNX artifacts are judged beside has to be the model."""

from quantflow.gate.result import CriterionResult
from quantflow.gate.verdict import Verdict
from quantflow.measure.fidelity import Fidelity

NAME, METRIC, HALF_METRIC = "graph", "logit_difference", "graph_kl_mean"
MAX_LOGIT_DIFFERENCE = 1e-3
"""What float32 leaves of equal arithmetic in another order, with room: after some tens of layers logits of
tens differ by 1e-4. A wrong rotary base, mask or norm moves them by tenths."""
MAX_HALF_KL = 5e-4
"""Nats per token: a graph in float16 rounds as an export to 16 bits does, and may lose what that may."""


def fidelity_criterion(artifact: str, fidelity: Fidelity) -> CriterionResult:
    """Judge whether the lossless graph is the model; an artifact beside another one cannot be judged at all.

    Args:
        artifact: Name of the artifact.
        fidelity: The lossless graph beside torch.
    """
    half = fidelity.precision == "fp16"
    value, margin = (
        (fidelity.kl_mean, MAX_HALF_KL) if half else (fidelity.max_logit_difference, MAX_LOGIT_DIFFERENCE)
    )
    figures = (
        f"over {fidelity.tokens} tokens of {fidelity.windows} {fidelity.split} windows logits differ by "
        f"{fidelity.max_logit_difference:.2g} at most, and KL is {fidelity.kl_mean:.2g} nats per token in "
        f"the mean and {fidelity.kl_max:.2g} at most"
    )
    limit = f"mean KL may be {margin:g}" if half else f"{margin:g} is allowed"
    same = value <= margin
    told = "is" if same else "is not"
    reason = f"The lossless graph in ONNX Runtime {told} the model in torch: {figures}, where {limit}."
    return CriterionResult(
        artifact=artifact,
        name=NAME,
        metric=HALF_METRIC if half else METRIC,
        value=value,
        delta=value,
        margin=margin,
        n=fidelity.tokens,
        n_clusters=fidelity.windows,
        verdict=Verdict.PASS if same else Verdict.ERROR,
        reason=reason if same else f"{reason} What is judged beside it says nothing of the model.",
    )
