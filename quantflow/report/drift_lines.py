"""What production text is beside calibration text, in sentences made from figures, and what to do."""

from collections.abc import Mapping

from quantflow.data.documents import MIN_DOCUMENTS
from quantflow.drift.record import DriftRecord
from quantflow.report.figures import percent, perplexity
from quantflow.report.wording import Wording

# What is named as a part of the difference. Less is what samples of some tens of documents differ by.
NOTABLE_SHARE = 0.1
NOTABLE_RATIO = 1.5
# Of activations outside their range, times what other calibration documents have.
NOTABLE_OUTSIDE = 2.0


def drift_lines(record: DriftRecord, words: Wording) -> list[str]:
    """The finding, where it comes from as far as it shows, and what to do about it; one sentence each.

    Args:
        record: What the drift stage found.
        words: The language.
    """
    found = record.tokens
    bits = {"js": f"{found.js:.3f}", "floor": f"{found.floor:.3f}", "high": f"{found.floor_high:.3f}"}
    outside = _outside(record, words)
    if not found.is_found and found.n_clusters < MIN_DOCUMENTS:  # of too few nothing is known to be the same
        return [words("drift.too_few", documents=found.n_clusters, least=MIN_DOCUMENTS, **bits), *outside]
    if not found.is_found:
        return [words("drift.same", **bits), *(outside or [words("drift.nothing_to_do")])]
    return [words("drift.differs", **bits), *_parts(record, words), words("drift.to_do")]


def _parts(record: DriftRecord, words: Wording) -> list[str]:
    before, now = record.calibration, record.reference
    parts = []
    if record.unseen_slices >= NOTABLE_SHARE:
        unseen = [name for name in now.slices if name not in before.slices]
        parts.append(
            words("drift.new_slices", share=percent(record.unseen_slices), names=words.joined(unseen))
        )
    for kind, own, other in (
        ("slice", now.slices, before.slices),
        ("script", now.scripts, before.scripts),
    ):
        name = _grown(own, other)
        if name is not None:
            shown = {"now": percent(own[name]), "before": percent(other.get(name, 0.0))}
            parts.append(words(f"drift.more_of_{kind}", name=name, **shown))
    ratio = now.length_median / before.length_median
    if not 1 / NOTABLE_RATIO < ratio < NOTABLE_RATIO:
        lengths = {"now": f"{now.length_median:,.0f}", "before": f"{before.length_median:,.0f}"}
        parts.append(words("drift.lengths", **lengths))
    if _apart(record):
        shown = {"now": perplexity(now.perplexity), "before": perplexity(before.perplexity)}
        parts.append(words("drift.surprise", **shown))
    return parts + _outside(record, words)


def _grown(own: Mapping[str, float], other: Mapping[str, float]) -> str | None:
    """What production has notably more of, the most so; not what calibration has none of at all."""
    more = {name: share - other[name] for name, share in own.items() if name in other}
    name = max(more, key=more.__getitem__, default=None)
    return name if name is not None and more[name] >= NOTABLE_SHARE else None


def _apart(record: DriftRecord) -> bool:
    """Whether the intervals of both perplexities are apart."""
    low, high = record.reference.perplexity_low, record.reference.perplexity_high
    own_low, own_high = record.calibration.perplexity_low, record.calibration.perplexity_high
    above = low is not None and own_high is not None and low > own_high
    below = high is not None and own_low is not None and high < own_low
    return above or below


def _outside(record: DriftRecord, words: Wording) -> list[str]:
    total = record.activations.total
    if total.outside <= NOTABLE_OUTSIDE * total.floor:
        return []
    shown = {"share": percent(total.outside, decimals=3), "floor": percent(total.floor, decimals=3)}
    return [words("drift.outside", **shown)]
