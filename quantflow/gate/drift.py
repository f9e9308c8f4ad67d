"""The criterion `drift`: how far production text is from calibration text."""

import math

from quantflow.drift.record import DriftRecord
from quantflow.gate.asked import DriftMargin
from quantflow.gate.decide import Criterion, decide
from quantflow.gate.result import CriterionResult
from quantflow.gate.statistics import RatioEstimate

NAME, METRIC = "drift", "js_bits"


def _bits(value: float) -> str:
    return f"{value:.3g} bits"


DRIFT = Criterion(
    NAME,
    METRIC,
    "The tokens of production text differ from those of calibration text, beyond what chance gives, by",
    _bits,
)


def drift_criterion(artifact: str, margin: DriftMargin, record: DriftRecord) -> CriterionResult:
    """Judge the divergence of token distributions beyond its noise floor.

    Args:
        artifact: Name of the artifact, which was calibrated on the text.
        margin: How far it may be.
        record: What the drift stage found.
    """
    found = record.tokens
    estimate = RatioEstimate(
        value=found.excess,
        std_error=math.inf if found.std_error is None else found.std_error,
        ci_low=-math.inf if found.ci_low is None else found.ci_low,
        ci_high=math.inf if found.ci_high is None else found.ci_high,
        n=found.n,
        n_clusters=found.n_clusters,
    )
    result = decide(artifact, DRIFT, estimate, margin.max_js, value=found.js)
    return result.model_copy(update={"required": margin.required, "noise_floor": found.floor})
