"""How figures of each metric are shown: a change, a value, a margin, and what was counted."""

from quantflow.gate.result import EVERYTHING, CriterionResult
from quantflow.measure.speed_value import SPEED_METRICS
from quantflow.report.figures import count, margin, nats, percent, perplexity, seconds, signed_percent, size
from quantflow.report.wording import Wording

# More is better in these, so what is allowed lies above the margin.
MORE_IS_BETTER = tuple(f"speedup_{metric}" for metric in SPEED_METRICS)
# Metrics whose change is a share of the baseline's value.
RELATIVE = ("perplexity", *MORE_IS_BETTER, "memory_ratio")
BYTES = ("memory_bytes", "memory_ratio")
# Shares of positions, prompts or items: the value is what was kept, the change what was lost.
SHARES = ("top1_agreement", "identical_rate")
# Numbers of things, which neither have a unit nor come from documents.
COUNTED = ("units_fallen_back",)
# Criteria whose metric is whatever a task or a scorer of a user's own says it is.
SCORED = ("tasks",)


def show_change(criterion: CriterionResult, value: float | None) -> str:
    """A value on the scale of a criterion's change: percent, bytes, or nats per token."""
    if criterion.metric in COUNTED:
        return count(None if value is None else round(value))
    if criterion.metric in RELATIVE:
        return signed_percent(value)
    if is_share(criterion):
        return percent(value, decimals=2)
    if criterion.metric in BYTES:
        return size(None if value is None else round(value))
    return nats(value)


def show_margin(criterion: CriterionResult) -> str:
    """A criterion's margin, with as many digits as it was given with."""
    if criterion.metric in COUNTED:
        return count(round(criterion.margin))
    if criterion.metric in BYTES and criterion.metric not in RELATIVE:
        return size(round(criterion.margin))
    if is_share(criterion):
        return f"{100 * criterion.margin:.6g} %"
    return margin(criterion.margin, relative=criterion.metric in RELATIVE)


def show_value(criterion: CriterionResult, value: float | None, words: Wording) -> str:
    """The baseline's or the artifact's own value of a criterion's metric."""
    if value is None or criterion.metric == "perplexity":
        return perplexity(value)
    if criterion.metric in COUNTED:
        return count(round(value))
    if criterion.metric in BYTES:
        return size(round(value))
    if is_share(criterion):
        return percent(value)
    if criterion.metric == "speedup_throughput":
        return words("unit.tokens_per_second", value=f"{value:,.4g}")
    return seconds(value) if criterion.metric in MORE_IS_BETTER else nats(value)


def show_sample(criterion: CriterionResult, words: Wording) -> str:
    """What the evidence is made of: documents, rounds of timing, or one run."""
    if criterion.name == "memory" or criterion.metric in COUNTED:
        return words("sample.once")
    what = "sample.rounds" if criterion.name == "speed" else "sample.documents"
    return words.counted(what, criterion.n_clusters, count(criterion.n_clusters))


def is_share(criterion: CriterionResult) -> bool:
    """Whether the metric is a share of what was asked, so that its change is in points of a hundred."""
    return criterion.metric in SHARES or criterion.name in SCORED


def show_metric(criterion: CriterionResult, words: Wording) -> str:
    """What is measured, as the heading of a row."""
    if criterion.name in SCORED:
        return words("metric.score", task=criterion.slice, metric=criterion.metric)
    return words.named("metric", criterion.metric)


def show_part(criterion: CriterionResult, words: Wording) -> str:
    """The part of the data, or the requests at a time, that it concerns; empty where it is all of it."""
    if criterion.slice == EVERYTHING or criterion.name in SCORED:
        return ""
    if criterion.name == "speed":
        return criterion.slice
    return words("criteria.in_slice", slice=criterion.slice)
