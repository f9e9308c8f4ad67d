"""The verdict in one sentence, and what to do next."""

from collections.abc import Sequence
from math import inf
from typing import get_args

from quantflow.data.documents import MIN_DOCUMENTS, Accounting
from quantflow.gate.criteria import CriterionResult
from quantflow.gate.verdict import Verdict
from quantflow.recipe.artifacts import AwqArtifact
from quantflow.report.figures import count, percent
from quantflow.report.model import ArtifactReport, Report, Scheme

# Stored with each group beside its zero point, which has the bits of a code.
SCALE_BITS = 16
GROUP_SIZES: tuple[int, ...] = get_args(AwqArtifact.model_fields["group_size"].annotation)
MARGIN_KEYS = {
    "perplexity": "gate.perplexity.max_increase",
    "kl": "gate.kl.max_mean",
    "speed": "gate.speed.min_speedup",
    "memory": "gate.memory",
}
# Criteria that more text decides; a lower bound of KL is not one of them, and nor is speed.
DECIDED_BY_TEXT = ("perplexity", "kl_mean", "nll")


def headline(report: Report) -> str:
    """The verdict in one sentence."""
    names = [artifact.name for artifact in report.artifacts if artifact.verdict is report.verdict]
    who, several = _joined(names), len(names) > 1
    if report.verdict is Verdict.ERROR or not names:
        return f"{who or 'The run'} could not be judged."
    if report.verdict is Verdict.PASS:
        return f"{who} {'pass' if several else 'passes'}: every criterion is inside its margin."
    if report.verdict is Verdict.FAIL:
        return f"{who} {'lose' if several else 'loses'} more than the recipe allows."
    return f"Not decided: the evidence neither clears {who} nor rejects {'them' if several else 'it'}."


def next_steps(report: Report) -> list[str]:
    """What to do now, most important first, in full sentences."""
    if report.verdict is Verdict.PASS:
        return _after_pass(report)
    if report.verdict is Verdict.FAIL:
        steps = _after_fail(report)
    elif report.verdict is Verdict.INCONCLUSIVE:
        steps = _after_inconclusive(report)
    else:
        steps = [
            "Do not ship what could not be judged: it has not passed.",
            "Mend what the reason names and run the same command again; finished stages are kept.",
        ]
    passed = [artifact.name for artifact in report.artifacts if artifact.verdict is Verdict.PASS]
    if passed:
        steps.append(f"{_joined(passed)} passed and can ship without the rest.")
    return steps


def _after_pass(report: Report) -> list[str]:
    places = _joined([artifact.path for artifact in report.artifacts])
    steps = [f"Ship what is in {places}."]
    if report.events:
        noun = "event" if len(report.events) == 1 else "events"
        steps.insert(0, f"Read the {len(report.events)} {noun} below: they say what this verdict rests on.")
    steps.append("Run again when the model, the data or the runtime changes: the verdict is about these.")
    return steps


def _after_fail(report: Report) -> list[str]:
    failed = [artifact for artifact in report.artifacts if artifact.verdict is Verdict.FAIL]
    steps = [f"Do not ship {_joined([artifact.name for artifact in failed])}."]
    steps.extend(step for artifact in failed if (step := _smaller_group(artifact, failed)))
    steps.append(
        "Calibrate on more text, and on text like that which is judged; the slices show where it loses most."
    )
    keys = _joined([key for name, key in MARGIN_KEYS.items() if _any(report, name, Verdict.FAIL)])
    if keys:
        steps.append(f"If your use can bear the loss, say so in the recipe ({keys}), and say why.")
    return steps


def _smaller_group(artifact: ArtifactReport, failed: list[ArtifactReport]) -> str:
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
    return (
        f"Try group_size {max(smaller)} instead of {group_size} for {artifact.name}: "
        f"finer scales, for {cost:.2f} bits more per weight."
    )


def _width(group_size: int) -> float:
    """Inputs of a group: without end where a whole row is one."""
    return inf if group_size == -1 else group_size


def scheme_line(scheme: Scheme) -> str:
    """A scheme in words: `gptq, 4 bits, groups of 128, symmetric`."""
    if scheme.method is None:
        return f"{scheme.dtype}, not quantized"
    groups = "one group a row" if scheme.group_size == -1 else f"groups of {scheme.group_size}"
    parts = [scheme.method, f"{scheme.bits} bits", groups]
    if scheme.symmetric is not None:
        parts.append("symmetric" if scheme.symmetric else "asymmetric")
    if scheme.desc_act:
        parts.append("columns by descending activation")
    return ", ".join(parts)


def _after_inconclusive(report: Report) -> list[str]:
    undecided = [c for c in report.criteria if c.required and c.verdict is Verdict.INCONCLUSIVE]
    steps = ["Do not ship yet: inconclusive is not a pass."]
    by_text = [criterion for criterion in undecided if criterion.metric in DECIDED_BY_TEXT]
    measured = max((criterion.n_clusters for criterion in by_text), default=0)
    needed = max([MIN_DOCUMENTS, *(c.needed_clusters or 0 for c in by_text)])
    if by_text and needed > measured:
        steps.append(
            f"Add text: about {count(needed)} evaluation documents would decide it, {count(measured)} were "
            f"measured{_in_all(report, needed)}."
        )
    if any(criterion.metric == "kl_lower_bound" for criterion in undecided):
        steps.append(
            "Measure KL where all of it can be seen: `gate.kl.runtime: torch` beside `runtime.name: vllm`."
        )
    if _any(report, "speed", Verdict.INCONCLUSIVE):
        steps.append("Time more rounds (gate.speed.rounds) on a machine that does nothing else.")
    if _any(report, "baseline", Verdict.INCONCLUSIVE):
        steps.append(
            "Find out why the original model cannot read this text before anything is made of it: try it on "
            "a few "
            "of your documents, and look at its tokenizer and at the events."
        )
    if any(_effect_equals_margin(criterion) for criterion in by_text):
        steps.append(
            "Where the effect equals the margin no amount of text decides: change the margin or the scheme."
        )
    return steps


def _in_all(report: Report, needed: int) -> str:
    """How many documents of any split that makes, at the split the run had."""
    if report.data is None or "evaluation" not in report.data.accounting.splits:
        return ""
    accounting = report.data.accounting
    evaluation, total = accounting.splits["evaluation"].total.documents_read, accounting.total.documents_read
    if not evaluation:
        return ""
    in_all = -(-needed * total // evaluation)
    share = percent(evaluation / total)
    return f"; with {share} of documents in evaluation, that is about {count(in_all)} in all"


def _effect_equals_margin(criterion: CriterionResult) -> bool:
    judged = criterion.delta is not None and criterion.n_clusters >= MIN_DOCUMENTS
    return judged and criterion.needed_clusters is None


def _any(report: Report, name: str, verdict: Verdict) -> bool:
    return any(criterion.name == name and criterion.verdict is verdict for criterion in report.criteria)


def reading_line(accounting: Accounting) -> str:
    """What was read of the files, in one sentence."""
    reading, total = accounting.reading, accounting.total
    parts = [f"{count(reading.documents)} documents read"]
    if reading.documents_undrawn:
        share = reading.characters_undrawn / max(reading.characters - reading.characters_undrawn, 1)
        parts.append(
            f"{count(reading.documents_undrawn)} of them not needed for the windows asked for "
            f"(about {count(round(total.tokens_read * share))} tokens)"
        )
    for number, what in (
        (reading.documents_undecodable, "undecodable"),
        (reading.documents_invalid, "unusable"),
        (reading.documents_refused, "refused by the chat template"),
    ):
        if number:
            parts.append(f"{count(number)} left out as {what}")
    return "; ".join(parts) + "."


def _joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
