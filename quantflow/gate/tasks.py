"""The criterion of a task: how many points its score drops, item by item."""

from quantflow.gate.asked import TaskMargin
from quantflow.gate.decide import Criterion, error
from quantflow.gate.result import CriterionResult
from quantflow.gate.scores import is_above, judge_scores, points
from quantflow.gate.verdict import Verdict
from quantflow.tasks.record import TaskRecord

NAME = "tasks"


def task_criterion(
    artifact: str, margin: TaskMargin, baseline: TaskRecord | None, measured: TaskRecord | None
) -> CriterionResult:
    """Judge one task.

    Args:
        artifact: Name of the artifact.
        margin: What it may lose.
        baseline: The lossless model's scores; None where there are none.
        measured: The artifact's.
    """
    metric = baseline.metric if baseline is not None else "score"
    criterion = Criterion(NAME, metric, f"{margin.task}: {metric} drops by", points)
    judged = _judged(artifact, criterion, margin, baseline, measured)
    return judged.model_copy(update={"slice": margin.task, "required": margin.required})


def _judged(
    artifact: str,
    criterion: Criterion,
    margin: TaskMargin,
    baseline: TaskRecord | None,
    measured: TaskRecord | None,
) -> CriterionResult:
    if baseline is None or measured is None:
        whose = "baseline" if baseline is None else "artifact"
        return error(artifact, criterion, margin.max_drop, f"{margin.task}: the {whose} was not run on it.")
    problem = pairing_problem(baseline, measured)
    if problem is not None:
        return error(artifact, criterion, margin.max_drop, f"{margin.task}: {problem}")
    clusters = [item.cluster for item in baseline.items]
    before = [item.value for item in baseline.items]
    result = judge_scores(
        artifact,
        criterion,
        before,
        [item.value for item in measured.items],
        clusters,
        margin.max_drop,
        higher_is_better=baseline.higher_is_better,
    )
    noise = baseline.noise
    result = result.model_copy(update={"noise_floor": None if noise is None else abs(noise.shift)})
    if is_above(before, clusters, baseline.chance, higher_is_better=baseline.higher_is_better):
        return result
    reason = (
        f"{margin.task}: the baseline scores {baseline.value:.3g} in {baseline.metric} on {len(before)} "
        f"items, no better than the {baseline.chance:.3g} of guessing, so that keeping it says nothing: take "
        "a task that the model can do, or more items of it."
    )
    return result.model_copy(
        update={"verdict": Verdict.INCONCLUSIVE, "reason": reason, "needed_clusters": None}
    )


def pairing_problem(baseline: TaskRecord, measured: TaskRecord) -> str | None:
    """Why two models' scores of a task cannot be paired, a sentence; None where they can.

    Args:
        baseline: The lossless model's.
        measured: The artifact's.
    """
    for what in ("metric", "higher_is_better", "num_fewshot", "chat_template", "version"):
        before, after = getattr(baseline, what), getattr(measured, what)
        if before != after:
            return f"the sides differ in {what} ({before} and {after}), so the scores do not pair."
    if [item.id for item in baseline.items] != [item.id for item in measured.items]:
        return "the sides were run on different items, so the scores do not pair."
    other = [b.id for b, m in zip(baseline.items, measured.items, strict=True) if b.hash != m.hash]
    if other:
        return (
            f"document or prompt of {len(other)} items, {other[0]} the first, are not the same on both "
            "sides, so the scores do not pair: a chat template or the task's data has changed."
        )
    if baseline.batches != measured.batches:
        return (
            "the same prompts came to other tokens or batches on the two sides, so the scores do not pair: "
            "the tokenizers differ."
        )
    return None
