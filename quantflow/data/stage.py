"""The data stage: business text to token windows of three sets, every token accounted for."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from quantflow.data.account import account, account_split
from quantflow.data.cut import Cut, cut_documents, pack_documents
from quantflow.data.documents import (
    MIN_DOCUMENTS,
    SPLITS,
    Document,
    SplitAccounting,
    SplitName,
    save_accounting,
    save_documents,
)
from quantflow.data.encode import TEMPLATE_DATE, Encoder, TokenizedDocument, tokenize_records
from quantflow.data.jsonl import read_records
from quantflow.data.params import DataParams
from quantflow.data.split import Corpus, assign_splits, drop_copies, rank
from quantflow.data.windows import CALIBRATION_FILE, EVALUATION_FILE, SELECTION_FILE, save_windows
from quantflow.errors import DataError, SourceError
from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import load_checkpoint

_FILES: Mapping[SplitName, str] = {
    "calibration": CALIBRATION_FILE,
    "selection": SELECTION_FILE,
    "evaluation": EVALUATION_FILE,
}


def run(params: DataParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Read, tokenize, split and cut the business text.

    Args:
        params: Files, sizes, shares and seed.
        inputs: Finished output of `source`.
        output: Folder to write to.
        reporter: Told of copies, of windows dropped and of data that is too little.

    Raises:
        DataError: Lines that cannot be used, or too little text for a calibration window or an evaluation.
        SourceError: The tokenizer cannot be loaded or does not belong to the model.
    """
    folder = load_checkpoint(inputs["source"]).folder
    encoder = Encoder(folder)
    corpus = drop_copies(_read(params, encoder, reporter))
    _check_vocabulary(folder, corpus.documents)
    shares: dict[SplitName, float] = {
        "calibration": params.calibration_share,
        "selection": params.selection_share,
        "evaluation": params.evaluation_share,
    }
    splits = assign_splits(corpus.documents, shares, params.seed)
    _report_reading(corpus, encoder, reporter)

    accounts: dict[SplitName, SplitAccounting] = {}
    for split in SPLITS:
        indices = [i for i, of in enumerate(splits) if of == split]
        if split == "calibration":
            indices.sort(key=lambda i: rank(params.seed, "pack", corpus.documents[i].digest))
        members = [corpus.documents[i] for i in indices]
        cut = _cut(split, members, indices, encoder.eos, params)
        copies = [copy for copy, kept in corpus.copies if splits[kept] == split]
        length = params.calibration_length if split == "calibration" else params.evaluation_length
        accounts[split] = account_split(cut, members, copies, length)
        save_windows(output / _FILES[split], cut.windows)
    _check_sizes(params, accounts)
    _report_sizes(params, accounts, reporter)

    documents = [
        Document(document.id, document.slice, split, len(document.tokens))
        for document, split in zip(corpus.documents, splits, strict=True)
    ]
    save_documents(output, documents)
    save_accounting(output, account(params.seed, accounts))


def _read(params: DataParams, encoder: Encoder, reporter: Reporter) -> list[TokenizedDocument]:
    files = [Path(name) for name in params.files]
    size = sum(path.stat().st_size for path in files if path.is_file())
    advance: Callable[[int], None]
    with reporter.track("reading and tokenizing bytes of text", size) as advance:
        return tokenize_records(read_records(files, advance), encoder)


def _check_vocabulary(folder: Path, documents: Sequence[TokenizedDocument]) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    size = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")
    largest = max((int(document.tokens.max()) for document in documents), default=0)
    if size is not None and largest >= size:
        raise SourceError(
            f"the tokenizer makes token {largest}, but the model's vocabulary ends at {size - 1}",
            where=str(folder),
            hint="The tokenizer's files and the weights are of two different models.",
        )


def _cut(
    split: SplitName,
    members: Sequence[TokenizedDocument],
    indices: Sequence[int],
    eos: int | None,
    params: DataParams,
) -> Cut:
    tokens = [document.tokens for document in members]
    if split == "calibration":
        wanted, length = params.calibration_windows, params.calibration_length
        return pack_documents(tokens, eos, length, wanted, params.seed)
    return cut_documents(tokens, indices, params.evaluation_length)


def _check_sizes(params: DataParams, accounts: Mapping[SplitName, SplitAccounting]) -> None:
    calibration, evaluation = accounts["calibration"], accounts["evaluation"]
    if calibration.windows == 0:
        raise DataError(
            f"the calibration documents hold {calibration.total.tokens_incomplete} tokens, not enough for "
            f"one window of {params.calibration_length}",
            where="data.files",
            hint="Give more text, lower data.calibration.length or raise data.split.calibration.",
        )
    if evaluation.windows == 0:
        raise DataError(
            "no document is left for the evaluation, so there would be nothing to judge",
            where="data.files",
            hint="Give more documents (the gate decides from 30 evaluation documents on) or raise "
            "data.split.evaluation.",
        )


def _report_reading(corpus: Corpus, encoder: Encoder, reporter: Reporter) -> None:
    if corpus.copies:
        read = len(corpus.documents) + len(corpus.copies)
        reporter.event(
            "duplicate-documents",
            f"{len(corpus.copies)} of {read} documents were exact copies of another one and were dropped.",
            documents=len(corpus.copies),
            tokens=sum(len(copy.tokens) for copy, _ in corpus.copies),
        )
    if encoder.date_asked:
        reporter.event(
            "chat-template-date",
            f"The chat template writes today's date into conversations; it got {TEMPLATE_DATE:%Y-%m-%d}, "
            "so that equal data gives equal tokens on any day.",
            date=f"{TEMPLATE_DATE:%Y-%m-%d}",
        )


def _report_sizes(
    params: DataParams, accounts: Mapping[SplitName, SplitAccounting], reporter: Reporter
) -> None:
    calibration = accounts["calibration"]
    if calibration.windows < params.calibration_windows:
        reporter.event(
            "fewer-calibration-windows",
            f"The calibration documents fill {calibration.windows} windows of {params.calibration_length} "
            f"tokens, {params.calibration_windows} were asked for.",
            windows=calibration.windows,
            asked=params.calibration_windows,
        )
    for split in ("selection", "evaluation"):
        dropped = accounts[split].windows_too_short
        if dropped:
            reporter.event(
                "short-windows-dropped",
                f"{dropped} {split} windows of one token were dropped, as nothing in them can be scored.",
                split=split,
                windows=dropped,
                tokens=accounts[split].total.tokens_too_short,
            )
    scored = accounts["evaluation"].total.documents_used
    if scored < MIN_DOCUMENTS:
        reporter.event(
            "few-evaluation-documents",
            f"There are {scored} evaluation documents; below {MIN_DOCUMENTS} the gate will be inconclusive.",
            documents=scored,
            needed=MIN_DOCUMENTS,
        )
