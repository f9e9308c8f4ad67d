"""The criterion of a scorer of the user's own: how much its mean drops, prompt by prompt."""

from collections.abc import Sequence

from quantflow.gate.asked import CustomMargin
from quantflow.gate.decide import Criterion, error
from quantflow.gate.result import CriterionResult
from quantflow.gate.scores import judge_scores
from quantflow.measure.custom import CustomScores

NAME = "custom"


def custom_criterion(
    artifact: str, margin: CustomMargin, scores: CustomScores | None, clusters: Sequence[int]
) -> CriterionResult:
    """Judge one scorer's scores.

    Args:
        artifact: Name of the artifact.
        margin: What they may lose.
        scores: Of both sides; None where there are none.
        clusters: Document → what stands for it and its near duplicates, [documents].
    """
    criterion = Criterion(NAME, margin.name, f"{margin.name} drops by", lambda value: f"{value:+.4g}")
    if scores is None:
        reason = f"{margin.name}: the scorer was not asked."
        return error(artifact, criterion, margin.max_drop, reason).model_copy(
            update={"required": margin.required}
        )
    result = judge_scores(
        artifact,
        criterion,
        scores.baseline,
        scores.artifact,
        [str(clusters[document]) for document in scores.documents],
        margin.max_drop,
        higher_is_better=margin.higher_is_better,
    )
    return result.model_copy(update={"required": margin.required})
