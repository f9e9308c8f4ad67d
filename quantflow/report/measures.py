"""How figures of each metric are shown: its name, a change, a value, a margin, and what was counted."""

from enum import Enum, auto

from quantflow.gate.level import LEVELS
from quantflow.gate.result import EVERYTHING, CriterionResult
from quantflow.measure.speed_value import SPEED_METRICS
from quantflow.report.figures import (
    NONE,
    count,
    margin,
    nats,
    percent,
    perplexity,
    seconds,
    signed_percent,
    size,
)
from quantflow.report.wording import Wording

# More is better in these, so what is allowed lies above the margin.
MORE_IS_BETTER = tuple(f"speedup_{metric}" for metric in SPEED_METRICS)
# Metrics whose change is a share of the baseline's value.
RELATIVE = ("perplexity", *MORE_IS_BETTER, "memory_ratio")
BYTES = ("memory_bytes", "memory_ratio")
# Shares of positions or prompts: the value is what was kept, the change what was lost.
SHARES = ("top1_agreement", "identical_rate")
COUNTS = ("differences", "units_fallen_back")
LEVEL = "lossless_level"
"""Metric of `gate.require`: 1 for L1, 4 for none of them."""
AGAINST = "against"
"""Name of the criteria that are held against the artifact in service instead of the baseline."""
# Criteria whose slice is the name of a task.
OF_TASKS = ("tasks", AGAINST)


class Scale(Enum):
    """What a criterion's change is counted in."""

    RELATIVE = auto()
    BYTES = auto()
    SHARE = auto()
    COUNT = auto()
    LEVEL = auto()
    PLAIN = auto()
    NATS = auto()


def scale_of(criterion: CriterionResult) -> Scale:
    """The scale of a criterion's change, interval and margin."""
    if is_task(criterion) or criterion.metric in SHARES:
        return Scale.SHARE
    if criterion.metric in RELATIVE:
        return Scale.RELATIVE
    if criterion.metric in BYTES:
        return Scale.BYTES
    if criterion.metric in COUNTS:
        return Scale.COUNT
    if criterion.metric == LEVEL:
        return Scale.LEVEL
    return Scale.PLAIN if criterion.name in ("custom", "drift") else Scale.NATS


def is_task(criterion: CriterionResult) -> bool:
    """Whether it is the score of a task, whose name then stands where others have their slice."""
    return criterion.name in OF_TASKS and criterion.slice != EVERYTHING


def show_change(criterion: CriterionResult, value: float | None) -> str:
    """A value on the scale of a criterion's change: percent, bytes, or nats per token."""
    scale = scale_of(criterion)
    if scale is Scale.RELATIVE:
        return signed_percent(value)
    if scale is Scale.SHARE:
        return percent(value, decimals=2)
    if scale is Scale.LEVEL:
        return NONE
    if scale in (Scale.BYTES, Scale.COUNT):
        whole = None if value is None else round(value)
        return size(whole) if scale is Scale.BYTES else count(whole)
    return nats(value)


def show_margin(criterion: CriterionResult) -> str:
    """A criterion's margin, with as many digits as it was given with."""
    scale = scale_of(criterion)
    if scale in (Scale.BYTES, Scale.COUNT, Scale.LEVEL):
        return show_change(criterion, criterion.margin)
    if scale is Scale.SHARE:
        return f"{100 * criterion.margin:.6g} %"
    return margin(criterion.margin, relative=scale is Scale.RELATIVE)


def show_value(criterion: CriterionResult, value: float | None, words: Wording) -> str:
    """The baseline's or the artifact's own value of a criterion's metric."""
    scale = scale_of(criterion)
    if value is None or criterion.metric == "perplexity":
        return perplexity(value)
    if criterion.metric in BYTES:
        return size(round(value))
    if scale is Scale.SHARE:
        return percent(value)
    if scale is Scale.COUNT:
        return count(round(value))
    if scale is Scale.LEVEL:
        return f"L{value:.0f}" if value <= len(LEVELS) else NONE
    if criterion.metric == "speedup_throughput":
        return words("unit.tokens_per_second", value=f"{value:,.4g}")
    return seconds(value) if criterion.metric in MORE_IS_BETTER else nats(value)


def show_sample(criterion: CriterionResult, words: Wording) -> str:
    """What the evidence is made of: documents, groups of a task's items, rounds of timing, or one run."""
    if criterion.name == "memory":
        return words("sample.once")
    if criterion.name == "census":
        return words.counted("sample.units", criterion.n, count(criterion.n))
    if scale_of(criterion) is Scale.COUNT:
        return words("sample.aspects")
    if scale_of(criterion) is Scale.LEVEL:
        return NONE
    what = "rounds" if criterion.name == "speed" else "groups" if is_task(criterion) else "documents"
    return words.counted(f"sample.{what}", criterion.n_clusters, count(criterion.n_clusters))


def show_metric(criterion: CriterionResult, words: Wording) -> str:
    """What is measured, as the heading of a row."""
    name = words.named("metric", criterion.metric)
    if is_task(criterion):
        name = words("metric.score", task=criterion.slice, metric=criterion.metric)
    return words("metric.against", metric=name) if criterion.name == AGAINST else name


def show_part(criterion: CriterionResult, words: Wording) -> str:
    """The part of the data, or the requests at a time, that it concerns; empty where it is all of it."""
    if criterion.slice == EVERYTHING or is_task(criterion):
        return ""
    if criterion.name == "speed":
        return criterion.slice
    return words("criteria.in_slice", slice=criterion.slice)
