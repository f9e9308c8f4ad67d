"""Events of the data stage: what was left out, read in another way than plainly, or is too little."""

from collections import defaultdict
from collections.abc import Sequence

from quantflow.data.documents import MIN_DOCUMENTS, Accounting
from quantflow.data.draw import Drawn, Seen
from quantflow.data.encode import TEMPLATE_DATE, Encoder
from quantflow.data.encoding import Encoding
from quantflow.data.files import DataFile
from quantflow.data.mistakes import Mistakes
from quantflow.data.params import DataParams
from quantflow.pipeline.events import Reporter

_SHOWN = 3
"""File names that a message lists."""


def report_files(
    files: Sequence[DataFile], encodings: Sequence[Encoding | None], asked: str, reporter: Reporter
) -> None:
    """Tell of files whose encoding was detected, or is not the one that the recipe names."""
    detected: dict[str, list[str]] = defaultdict(list)
    others: dict[str, list[str]] = defaultdict(list)
    for file, encoding in zip(files, encodings, strict=True):
        if encoding is None:
            continue
        if encoding.told_by == "detected":
            detected[encoding.codec].append(file.name)
        elif asked != "auto" and encoding.told_by != "given":
            others[encoding.codec].append(file.name)
    for codec, names in sorted(detected.items()):
        reporter.event(
            "encoding-detected",
            f"Not UTF-8 and read as {codec}, which their characters point to: {_listed(names)}. Set "
            "data.encoding to be sure.",
            encoding=codec,
            files=len(names),
        )
    for codec, names in sorted(others.items()):
        reporter.event(
            "encoding-not-as-set",
            f"Read as {codec}, which they are, and not as {asked}, as data.encoding says: {_listed(names)}.",
            encoding=codec,
            files=len(names),
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)[:_SHOWN]) + (
        f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    )


def report_draw(
    accounting: Accounting,
    drawn: Sequence[Drawn],
    mistakes: Mistakes,
    encoder: Encoder,
    seen: Seen,
    reporter: Reporter,
) -> None:
    """Tell of what was skipped, dropped or not taken as it is."""
    reading, total, near = accounting.reading, accounting.total, accounting.near_duplicates
    skipped = reading.documents_undecodable + reading.documents_invalid + reading.documents_refused
    if skipped:
        first = mistakes.first[0]
        reporter.event(
            "documents-skipped",
            f"{skipped} lines or rows cannot be used and were left out; the first: {first.message}.",
            undecodable=reading.documents_undecodable,
            invalid=reading.documents_invalid,
            refused=reading.documents_refused,
        )
    if total.documents_duplicate:
        reporter.event(
            "duplicate-documents",
            f"{total.documents_duplicate} of {total.documents_read} documents were exact copies of another "
            "one and were dropped.",
            documents=total.documents_duplicate,
            tokens=total.tokens_duplicate,
        )
    if near is not None and near.groups:
        reporter.event(
            "near-duplicate-documents",
            f"{near.documents} documents are near duplicates, in {near.groups} groups of up to "
            f"{near.largest}; each group is in one split, and the gate counts it as one document.",
            documents=near.documents,
            groups=near.groups,
            largest=near.largest,
        )
    if seen.replaced:
        reporter.event(
            "replacement-characters",
            f"{seen.replaced} documents hold U+FFFD, the mark of a character that was lost in an earlier "
            "conversion of the data.",
            documents=seen.replaced,
        )
    _report_template(drawn, encoder, reporter)


def _report_template(drawn: Sequence[Drawn], encoder: Encoder, reporter: Reporter) -> None:
    tools = sum(item.rendered is not None and item.rendered.tools_lost for item in drawn)
    text = sum(item.rendered is not None and item.rendered.text_lost for item in drawn)
    if tools:
        reporter.event(
            "chat-template-leaves-out-tools",
            f"{tools} conversations have tools or calls to tools that the model's chat template does not "
            "write: the model will be calibrated and judged without them.",
            documents=tools,
        )
    if text:
        reporter.event(
            "chat-template-leaves-out-text",
            f"Of {text} conversations the model's chat template does not write all that is said.",
            documents=text,
        )
    if encoder.date_asked:
        reporter.event(
            "chat-template-date",
            f"The chat template writes today's date into conversations; it got {TEMPLATE_DATE:%Y-%m-%d}, "
            "so that equal data gives equal tokens on any day.",
            date=f"{TEMPLATE_DATE:%Y-%m-%d}",
        )


def report_sizes(params: DataParams, accounting: Accounting, scored: int, reporter: Reporter) -> None:
    """Tell of what is less than asked for, or little.

    Args:
        params: What is asked for.
        accounting: What there is.
        scored: Documents with evaluation windows, near duplicates as one.
        reporter: Told.
    """
    calibration = accounting.splits["calibration"]
    if calibration.windows < params.calibration_windows:
        reporter.event(
            "fewer-calibration-windows",
            f"The calibration documents fill {calibration.windows} windows of {params.calibration_length} "
            f"tokens, {params.calibration_windows} were asked for.",
            windows=calibration.windows,
            asked=params.calibration_windows,
        )
    for split in ("selection", "evaluation"):
        dropped = accounting.splits[split].windows_too_short
        if dropped:
            reporter.event(
                "short-windows-dropped",
                f"{dropped} {split} windows of one token were dropped, as nothing in them can be scored.",
                split=split,
                windows=dropped,
                tokens=accounting.splits[split].total.tokens_too_short,
            )
    if scored < MIN_DOCUMENTS:
        reporter.event(
            "few-evaluation-documents",
            f"There are {scored} evaluation documents; below {MIN_DOCUMENTS} the gate will be inconclusive.",
            documents=scored,
            needed=MIN_DOCUMENTS,
        )
