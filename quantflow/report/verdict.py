"""The verdict in one sentence, and for each criterion why: what it came to, by how much, how sure."""

from collections.abc import Sequence

from quantflow.data.documents import MIN_DOCUMENTS
from quantflow.gate.result import EVERYTHING, CriterionResult
from quantflow.gate.verdict import Verdict
from quantflow.report.measures import (
    LEVEL,
    is_task,
    show_change,
    show_margin,
    show_metric,
    show_part,
    show_sample,
    show_value,
)
from quantflow.report.model import Report
from quantflow.report.wording import Wording

MOST_SLICES = 30
"""Criteria by slice that are drawn; the table under Slices has all of them."""
# A criterion whose interval is a lower bound's.
_BOUND = "kl_lower_bound"


def headline(report: Report, words: Wording) -> str:
    """The verdict in one sentence."""
    names = [artifact.name for artifact in report.artifacts if artifact.verdict is report.verdict]
    if report.verdict is Verdict.ERROR or not names:
        return words("headline.error", who=words.joined(names) if names else words("headline.run"))
    number = "several" if len(names) > 1 else "one"
    return words(f"headline.{report.verdict}_{number}", who=words.joined(names))


def deciding(report: Report) -> tuple[CriterionResult, ...]:
    """The required criteria that the run's verdict comes from, those over all data first."""
    found = [c for c in leading(report) if c.required and c.verdict is report.verdict]
    return tuple(sorted(found, key=lambda criterion: criterion.slice != EVERYTHING))


def by_slice(report: Report) -> tuple[CriterionResult, ...]:
    """The criteria that concern a part of the evaluation data."""
    parts = [criterion for criterion in report.criteria if criterion.slice != EVERYTHING]
    return tuple(c for c in parts if c.name != "speed" and not is_task(c))


def leading(report: Report) -> tuple[CriterionResult, ...]:
    """The criteria to look at first: of those by slice some of the required ones that do not pass."""
    parts = {id(criterion) for criterion in by_slice(report)}
    shown: list[CriterionResult] = []
    room = MOST_SLICES
    for criterion in report.criteria:
        if id(criterion) in parts:
            if not criterion.required or criterion.verdict is Verdict.PASS or room == 0:
                continue
            room -= 1
        shown.append(criterion)
    return tuple(shown)


def errors(report: Report) -> Sequence[str]:
    """What kept the run from judging, as the program says it: nothing but figures can be said otherwise."""
    if report.verdict is not Verdict.ERROR:
        return ()
    return [report.reason]


def why(criterion: CriterionResult, words: Wording) -> str:
    """A criterion's outcome as a sentence, made from its figures: what, by how much, how sure.

    Args:
        criterion: A criterion that was judged.
        words: The language to say it in.
    """
    name, limit = _name(criterion, words), show_margin(criterion)
    if criterion.delta is None:
        return words("why.unmeasured", name=name, margin=limit)
    if criterion.metric == LEVEL:
        return words(
            f"why.level_{criterion.verdict}", name=name, level=show_value(criterion, criterion.value, words)
        )
    delta = show_change(criterion, criterion.delta)
    if criterion.metric == _BOUND and criterion.verdict is not Verdict.FAIL:
        return words("why.bound", name=name, delta=delta, margin=limit)
    low, high = criterion.ci_low, criterion.ci_high
    if low is None or high is None or _few(criterion):
        kind = "few" if criterion.verdict is Verdict.INCONCLUSIVE else f"{criterion.verdict}_point"
        sample = show_sample(criterion, words)
        return words(f"why.{kind}", name=name, delta=delta, margin=limit, sample=sample)
    ends = {"low": show_change(criterion, low), "high": show_change(criterion, high)}
    kind = "undecided" if criterion.verdict is Verdict.INCONCLUSIVE else str(criterion.verdict)
    interval = words("why.interval", **ends)
    return words(f"why.{kind}", name=name, delta=delta, margin=limit, interval=interval)


def _few(criterion: CriterionResult) -> bool:
    return criterion.verdict is Verdict.INCONCLUSIVE and criterion.n_clusters < MIN_DOCUMENTS


def _name(criterion: CriterionResult, words: Wording) -> str:
    metric, part = show_metric(criterion, words), show_part(criterion, words)
    if not part:
        return words("why.of", name=metric, artifact=criterion.artifact)
    return words("why.of_part", name=metric, part=part, artifact=criterion.artifact)
