"""The verdict in one sentence, and for each criterion why: what it came to, by how much, how sure."""

from collections.abc import Sequence

from quantflow.data.documents import MIN_DOCUMENTS
from quantflow.gate.criteria import CriterionResult
from quantflow.gate.verdict import Verdict
from quantflow.report.measures import show_change, show_margin, show_sample
from quantflow.report.model import Report
from quantflow.report.wording import Wording

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
    """The required criteria that the run's verdict comes from; of a pass, all of them."""
    return tuple(c for c in report.criteria if c.required and c.verdict is report.verdict)


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
    metric = words.named("metric", criterion.metric)
    if criterion.slice == "all":
        return words("why.of", name=metric, artifact=criterion.artifact)
    key = "why.of_speed" if criterion.name == "speed" else "why.of_slice"
    return words(key, name=metric, slice=criterion.slice, artifact=criterion.artifact)
