"""What to do next, for each verdict."""

from math import inf
from typing import get_args

from quantflow.data.documents import MIN_DOCUMENTS
from quantflow.gate.result import CriterionResult
from quantflow.gate.verdict import Verdict
from quantflow.recipe.artifacts import AwqArtifact
from quantflow.report.figures import count, percent
from quantflow.report.model import ArtifactReport, Report
from quantflow.report.wording import Wording

# Stored with each group beside its zero point, which has the bits of a code.
SCALE_BITS = 16
GROUP_SIZES: tuple[int, ...] = get_args(AwqArtifact.model_fields["group_size"].annotation)
MARGIN_KEYS = {
    "perplexity": "gate.perplexity.max_increase",
    "kl_mean": "gate.kl.max_mean",
    "kl_lower_bound": "gate.kl.max_mean",
    "kl_p99": "gate.kl.max_p99",
    "top1_agreement": "gate.kl.min_top1_agreement",
    "identical_rate": "gate.generation.min_identical",
    "speed": "gate.speed.min_speedup",
    "memory": "gate.memory",
    "tasks": "gate.tasks",
    "js_bits": "gate.drift.max_js",
}
"""Metric, or where that varies the criterion's name → the recipe's key of its margin."""
# Criteria that more text decides; a lower bound of KL is not one of them, and nor is speed.
DECIDED_BY_TEXT = ("perplexity", "kl_mean", "kl_p99", "top1_agreement", "nll")


def next_steps(report: Report, words: Wording) -> list[str]:
    """What to do now, most important first, in full sentences."""
    if report.verdict is Verdict.PASS:
        return _after_pass(report, words)
    if report.verdict is Verdict.FAIL:
        steps = _after_fail(report, words)
    elif report.verdict is Verdict.INCONCLUSIVE:
        steps = _after_inconclusive(report, words)
    else:
        steps = [words("next.error_stop"), words("next.error_mend")]
    passed = [artifact.name for artifact in report.artifacts if artifact.verdict is Verdict.PASS]
    if passed:
        steps.append(words("next.rest", names=words.joined(passed)))
    return steps


def _after_pass(report: Report, words: Wording) -> list[str]:
    places = words.joined([artifact.path for artifact in report.artifacts])
    steps = [words("next.pass_ship", places=places)]
    if report.events:
        number = len(report.events)
        steps.insert(0, words.counted("next.pass_events", number, count(number)))
    steps.append(words("next.pass_again"))
    return steps


def _after_fail(report: Report, words: Wording) -> list[str]:
    failed = [artifact for artifact in report.artifacts if artifact.verdict is Verdict.FAIL]
    steps = [words("next.fail_stop", names=words.joined([artifact.name for artifact in failed]))]
    steps.extend(step for artifact in failed if (step := _smaller_group(artifact, failed, words)))
    steps.append(words("next.fail_text"))
    if _any(report, "drift", Verdict.FAIL):
        steps.append(words("next.fail_drift"))
    missed = [c for c in report.criteria if c.required and c.verdict is Verdict.FAIL]
    of_metric = [MARGIN_KEYS.get(c.metric, MARGIN_KEYS.get(c.name, "")) for c in missed]
    keys = sorted(set(of_metric) - {""})
    if keys:
        steps.append(words("next.fail_margin", keys=words.joined(keys)))
    return steps


def _smaller_group(artifact: ArtifactReport, failed: list[ArtifactReport], words: Wording) -> str:
    group_size = artifact.scheme.group_size
    if group_size is None or artifact.format == "onnx":  # whose blocks have a size of their own
        return ""
    scheme = artifact.scheme
    same = [
        s for s in (other.scheme for other in failed) if (s.method, s.bits) == (scheme.method, scheme.bits)
    ]
    tried = [_width(s.group_size) for s in same if s.group_size is not None]
    smaller = [size for size in GROUP_SIZES if size < min(tried)]
    if not smaller:
        return ""
    cost = (SCALE_BITS + scheme.bits) * (1 / max(smaller) - 1 / _width(group_size))
    return words(
        "next.fail_group",
        smaller=max(smaller),
        group_size=group_size,
        name=artifact.name,
        bits=f"{cost:.2f}",
    )


def _width(group_size: int) -> float:
    """Inputs of a group: without end where a whole row is one."""
    return inf if group_size == -1 else group_size


def _after_inconclusive(report: Report, words: Wording) -> list[str]:
    undecided = [c for c in report.criteria if c.required and c.verdict is Verdict.INCONCLUSIVE]
    steps = [words("next.undecided_stop")]
    by_text = [criterion for criterion in undecided if criterion.metric in DECIDED_BY_TEXT]
    measured = max((criterion.n_clusters for criterion in by_text), default=0)
    needed = max([MIN_DOCUMENTS, *(c.needed_clusters or 0 for c in by_text)])
    if by_text and needed > measured:
        steps.append(_add_text(report, needed, measured, words))
    if any(criterion.metric == "kl_lower_bound" for criterion in undecided):
        steps.append(words("next.undecided_bound"))
    if _any(report, "speed", Verdict.INCONCLUSIVE):
        steps.append(words("next.undecided_speed"))
    if _any(report, "baseline", Verdict.INCONCLUSIVE):
        steps.append(words("next.undecided_baseline"))
    if any(_effect_equals_margin(criterion) for criterion in by_text):
        steps.append(words("next.undecided_equal"))
    return steps


def _add_text(report: Report, needed: int, measured: int, words: Wording) -> str:
    """How many documents would decide and, at the split the run had, how many of any split that makes."""
    shown = {"needed": count(needed), "measured": count(measured)}
    if report.data is None or "evaluation" not in report.data.accounting.splits:
        return words("next.undecided_text", **shown)
    accounting = report.data.accounting
    evaluation, total = accounting.splits["evaluation"].total.documents_read, accounting.total.documents_read
    if not evaluation:
        return words("next.undecided_text", **shown)
    share, in_all = percent(evaluation / total), count(-(-needed * total // evaluation))
    return words("next.undecided_text_all", **shown, share=share, all=in_all)


def _effect_equals_margin(criterion: CriterionResult) -> bool:
    judged = criterion.delta is not None and criterion.n_clusters >= MIN_DOCUMENTS
    return judged and criterion.needed_clusters is None


def _any(report: Report, name: str, verdict: Verdict) -> bool:
    return any(criterion.name == name and criterion.verdict is verdict for criterion in report.criteria)
