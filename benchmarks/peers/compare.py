"""The rows of all tools set side by side, as JSON and as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from .measure import BOTH, OURS, Row
from .processes import NotFinished

IN_DOMAIN, OUT_OF_DOMAIN = "in_domain", "out_of_domain"
COLUMNS = ("KL out", "ppl out", "KL in", "ppl in", "wall s", "cpu s", "MB")


def compare(rows: Sequence[Row], baseline: Mapping[str, float]) -> dict[str, Any]:
    """What `int4.py` prints.

    Args:
        rows: All tools' rows, judged.
        baseline: Perplexity of the lossless model by text.
    """
    ours = {row.method: figures(row) for row in rows if row.tool == OURS}
    peers: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row.tool != OURS:
            peers.setdefault(row.tool, {})[row.method] = figures(row)
    result: dict[str, Any] = {
        method: ours[method] | _beside_best(ours[method], method, peers)
        for method in ("awq", "gptq")
        if "kl" in ours.get(method, {})
    }
    awq, both = ours.get("awq", {}), ours.get(f"{BOTH}_awq", {})
    return result | {
        "both_vs_awq_alone": _ratio(both, awq, "seconds"),
        "both_vs_awq_alone_cpu": _ratio(both, awq, "cpu_seconds"),
        "peers": peers,
        "baseline_perplexity": baseline[OUT_OF_DOMAIN],
        "baseline_perplexity_in_domain": baseline[IN_DOMAIN],
        OURS: ours,
    }


def figures(row: Row) -> dict[str, Any]:
    """One row; KL and perplexity are out of domain unless they say otherwise."""
    if isinstance(row.outcome, NotFinished):
        return vars(row.outcome)
    inside, outside = row.quality[IN_DOMAIN], row.quality[OUT_OF_DOMAIN]
    return {
        "kl": outside.kl,
        "perplexity": outside.perplexity,
        "kl_in_domain": inside.kl,
        "perplexity_in_domain": inside.perplexity,
        **vars(row.outcome),
    }


def table(rows: Sequence[Row], baseline: Mapping[str, float]) -> str:
    """The same for a reader."""
    lines = [
        f"{'':32}" + "".join(f"{name:>9}" for name in COLUMNS),
        f"{'lossless':32} {'':8} {baseline[OUT_OF_DOMAIN]:8.2f} {'':8} {baseline[IN_DOMAIN]:8.2f}",
    ]
    for row in rows:
        name = f"{row.tool} {row.method}"
        if isinstance(row.outcome, NotFinished):
            lines.append(f"{name:32} {row.outcome.status}: {row.outcome.why.splitlines()[-1]}")
            continue
        outside, inside, taken = row.quality[OUT_OF_DOMAIN], row.quality[IN_DOMAIN], row.outcome
        lines.append(
            f"{name:32} {outside.kl:8.4f} {outside.perplexity:8.2f} {inside.kl:8.4f} {inside.perplexity:8.2f}"
            f" {taken.seconds:8.1f} {taken.cpu_seconds:8.1f} {taken.peak_bytes / 1e6:8.0f}"
        )
    return "\n".join(lines)


def _beside_best(
    ours: Mapping[str, Any], method: str, peers: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Ratios to the peer that runs the same algorithm with the lowest out-of-domain KL."""
    finished = {tool: rows[method] for tool, rows in peers.items() if "kl" in rows.get(method, {})}
    best = min(finished, key=lambda tool: float(finished[tool]["kl"]), default=None)
    other = finished[best] if best is not None else {}
    return {
        "best": best,
        "kl_vs_best": _ratio(ours, other, "kl"),
        "time_vs_best": _ratio(ours, other, "seconds"),
        "cpu_time_vs_best": _ratio(ours, other, "cpu_seconds"),
        "memory_vs_best": _ratio(ours, other, "peak_bytes"),
    }


def _ratio(ours: Mapping[str, Any], other: Mapping[str, Any], figure: str) -> float | None:
    if not ours.get(figure) or not other.get(figure):
        return None
    return round(float(ours[figure]) / float(other[figure]), 4)
