"""How figures of each metric are shown: a change, a value, a margin, and what was counted."""

from quantflow.gate.criteria import CriterionResult
from quantflow.measure.speed_value import SPEED_METRICS
from quantflow.report.figures import count, margin, nats, perplexity, seconds, signed_percent, size
from quantflow.report.wording import Wording

# More is better in these, so what is allowed lies above the margin.
MORE_IS_BETTER = tuple(f"speedup_{metric}" for metric in SPEED_METRICS)
# Metrics whose change is a share of the baseline's value.
RELATIVE = ("perplexity", *MORE_IS_BETTER, "memory_ratio")
BYTES = ("memory_bytes", "memory_ratio")


def show_change(criterion: CriterionResult, value: float | None) -> str:
    """A value on the scale of a criterion's change: percent, bytes, or nats per token."""
    if criterion.metric in RELATIVE:
        return signed_percent(value)
    if criterion.metric in BYTES:
        return size(None if value is None else round(value))
    return nats(value)


def show_margin(criterion: CriterionResult) -> str:
    """A criterion's margin, with as many digits as it was given with."""
    if criterion.metric in BYTES and criterion.metric not in RELATIVE:
        return size(round(criterion.margin))
    return margin(criterion.margin, relative=criterion.metric in RELATIVE)


def show_value(criterion: CriterionResult, value: float | None, words: Wording) -> str:
    """The baseline's or the artifact's own value of a criterion's metric."""
    if value is None or criterion.metric == "perplexity":
        return perplexity(value)
    if criterion.metric in BYTES:
        return size(round(value))
    if criterion.metric == "speedup_throughput":
        return words("unit.tokens_per_second", value=f"{value:,.4g}")
    return seconds(value) if criterion.metric in MORE_IS_BETTER else nats(value)


def show_sample(criterion: CriterionResult, words: Wording) -> str:
    """What the evidence is made of: documents, rounds of timing, or one run."""
    if criterion.name == "memory":
        return words("sample.once")
    what = "sample.rounds" if criterion.name == "speed" else "sample.documents"
    return words.counted(what, criterion.n_clusters, count(criterion.n_clusters))
