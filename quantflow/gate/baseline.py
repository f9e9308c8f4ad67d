"""The criterion `baseline`: whether there is anything to hold an artifact against."""

import math

import numpy as np

from quantflow.gate.result import CriterionResult
from quantflow.gate.verdict import Verdict
from quantflow.inspection.record import near_random_loss
from quantflow.measure.measurement import Samples


def baseline_criterion(artifact: str, baseline: Samples, vocab_size: int) -> CriterionResult | None:
    """Whether the baseline reads the evaluation text at all; None where it does, and nothing has to be said.

    Agreement with a model that guesses says nothing: an artifact of one must not pass, however close it
    stays.

    Args:
        artifact: Name of the artifact.
        baseline: Samples of the lossless model.
        vocab_size: Tokens it can choose from.
    """
    limit = near_random_loss(vocab_size)
    loss = float(baseline.nll.astype(np.float64).mean()) if baseline.nll.size else 0.0
    if not loss >= limit:  # a loss that is no number is for the perplexity criterion to name
        return None
    return CriterionResult(
        artifact=artifact,
        name="baseline",
        metric="nll",
        baseline=loss if math.isfinite(loss) else None,
        margin=limit,
        n=int(baseline.nll.size),
        n_clusters=int(np.unique(baseline.document).size),
        verdict=Verdict.INCONCLUSIVE,
        reason=f"The baseline predicts the evaluation text no better than chance ({loss:.2f} nats per "
        f"token, {math.log(vocab_size):.2f} being those of a guess), so that to agree with it says nothing: "
        "the model is broken, or the text is of a kind that it does not know.",
    )
