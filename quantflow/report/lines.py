"""Facts of a report as a line of text: a scheme, what was read of the files."""

from quantflow.data.documents import Accounting
from quantflow.data.overlap import PASSAGE as PASSAGE_TOKENS
from quantflow.report.decision import Decision
from quantflow.report.figures import count, percent
from quantflow.report.model import ArtifactReport, LeakageReport, Scheme
from quantflow.report.wording import Wording


def scheme_line(scheme: Scheme, words: Wording) -> str:
    """A scheme in words: `gptq, 4 bits, groups of 128, symmetric`."""
    if scheme.method is None:
        return words("scheme.dtype", dtype=scheme.dtype)
    parts = [scheme.method, words("scheme.bits", bits=scheme.bits)]
    if scheme.group_size == -1:
        parts.append(words("scheme.row"))
    elif scheme.group_size is not None:
        parts.append(words("scheme.groups", size=scheme.group_size))
    if scheme.symmetric is not None:
        parts.append(words("scheme.symmetric" if scheme.symmetric else "scheme.asymmetric"))
    if scheme.desc_act:
        parts.append(words("scheme.desc_act"))
    return words("list.comma").join(parts)


def reading_line(accounting: Accounting, words: Wording) -> str:
    """What was read of the files, in one sentence."""
    reading, total = accounting.reading, accounting.total
    parts = [words("data.read", count=count(reading.documents))]
    if reading.documents_undrawn:
        share = reading.characters_undrawn / max(reading.characters - reading.characters_undrawn, 1)
        tokens = count(round(total.tokens_read * share))
        parts.append(words("data.undrawn", count=count(reading.documents_undrawn), tokens=tokens))
    for number, what in (
        (reading.documents_undecodable, "undecodable"),
        (reading.documents_invalid, "invalid"),
        (reading.documents_refused, "refused"),
    ):
        if number:
            parts.append(words(f"data.{what}", count=count(number)))
    return words("list.clauses").join(parts) + words("list.stop")


def leakage_line(leakage: LeakageReport, words: Wording) -> str:
    """How many evaluation documents share a passage with what was calibrated or chosen on."""
    number = leakage.evaluation_overlapping
    return words.counted(
        "leakage.evaluation",
        number,
        count(number),
        all=count(leakage.evaluation_documents),
        passage=PASSAGE_TOKENS,
        share=percent(leakage.evaluation_share),
    )


def saving_line(artifact: ArtifactReport, words: Wording) -> str:
    """On how many documents an artifact was measured that is measured look by look."""
    saving = artifact.saving
    assert saving is not None
    return words.counted(
        "criteria.saved",
        saving.looks,
        count(saving.looks),
        name=artifact.name,
        measured=count(saving.measured),
        available=count(saving.available),
        share=percent(saving.share),
    )


def kept_line(artifact: ArtifactReport, words: Wording) -> str:
    """The units of the blocks that stay in the model's own type."""
    number, units = len(artifact.kept_units), words("list.comma").join(artifact.kept_units)
    return words.counted("cost.kept_units", number, count(number), units=units)


def decision_line(decision: Decision, words: Wording) -> str:
    """What a person decided about these bytes: who, when, why, and of a waiver until when."""
    names = words.joined(list(decision.digests))
    said = {"names": names, "by": decision.by, "at": decision.at, "reason": decision.reason}
    if decision.kind == "approval":
        return words("verdict.approval", **said)
    return words("verdict.waiver", **said, criterion=decision.criterion, until=decision.until)
