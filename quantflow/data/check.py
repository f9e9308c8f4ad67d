"""What a run cannot go on with: a tokenizer that does not fit, too little text, an evaluation seen before."""

import json
from collections.abc import Sequence
from pathlib import Path

from quantflow.data.documents import Accounting
from quantflow.data.encode import Encoder, TokenizedDocument
from quantflow.data.files import DataFile
from quantflow.data.overlap import PASSAGE
from quantflow.data.params import DataParams
from quantflow.errors import DataError, RecipeError, SourceError
from quantflow.pipeline.events import Reporter

NOTABLE_OVERLAP = 0.05
"""Share of evaluation tokens in copied passages from which a reader of the report should know of it: what is
usual in texts written one by one is below 0.01."""


def check_bos(encoder: Encoder, params: DataParams) -> int | None:
    """The BOS token that selection and evaluation windows begin with; None for none.

    Raises:
        RecipeError: It is asked for, and the tokenizer has none.
    """
    if params.evaluation_bos == "never":
        return None
    if params.evaluation_bos == "auto":
        return encoder.bos if encoder.begins_with_bos() else None
    if encoder.bos is None:
        raise RecipeError(
            "every window is to begin with BOS, but the model's tokenizer has no such token",
            where="data.evaluation.bos",
            hint="Set it to auto.",
        )
    return encoder.bos


def check_vocabulary(folder: Path, documents: Sequence[TokenizedDocument]) -> None:
    """Hold the tokens to the model's vocabulary.

    Raises:
        SourceError: The tokenizer makes tokens that the model does not have.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    size = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")
    largest = max((int(document.tokens.max()) for document in documents), default=0)
    if size is not None and largest >= size:
        raise SourceError(
            f"the tokenizer makes token {largest}, but the model's vocabulary ends at {size - 1}",
            where=str(folder),
            hint="The tokenizer's files and the weights are of two different models.",
        )


def check_sizes(params: DataParams, files: Sequence[DataFile], accounting: Accounting) -> None:
    """Hold the splits to what a run needs at the least.

    Raises:
        DataError: There is no calibration window, or nothing to judge.
    """
    calibration, evaluation = accounting.splits["calibration"], accounting.splits["evaluation"]
    if accounting.reading.documents == 0:
        raise DataError("the files hold no document", where="data.files", hint="Give text.")
    if calibration.windows == 0:
        raise DataError(
            f"the calibration documents hold {calibration.total.tokens_incomplete} tokens, not enough for "
            f"one window of {params.calibration_length}",
            where="data.files",
            hint="Give more text, lower data.calibration.length or raise data.split.calibration."
            + _why_few(params, files, accounting),
        )
    if evaluation.windows == 0:
        raise DataError(
            "no document is left for the evaluation, so there would be nothing to judge",
            where="data.files",
            hint="Give more documents (the gate decides from 30 evaluation documents on) or raise "
            "data.split.evaluation." + _why_few(params, files, accounting),
        )


def _why_few(params: DataParams, files: Sequence[DataFile], accounting: Accounting) -> str:
    near = accounting.near_duplicates
    if params.reading.documents == "file" and any(file.format == "txt" for file in files):
        return " A text file counts as one document; set data.documents to paragraph or line for more."
    if near is not None and near.documents:
        return f" Near duplicates stay in one split: {near.largest} documents are nearly the same."
    return ""


def check_overlap(params: DataParams, accounting: Accounting, reporter: Reporter) -> None:
    """Hold the evaluation to text that calibration has not seen.

    Raises:
        DataError: More of it than allowed stands in passages that calibration or selection windows have.
    """
    share = accounting.splits["evaluation"].overlap or 0.0
    what = (
        f"{share:.1%} of the evaluation's tokens stand in passages of {PASSAGE} tokens or more that "
        "calibration or selection text has word for word"
    )
    if share > params.max_overlap:
        raise DataError(
            what,
            where="data.max_overlap",
            hint=f"The evaluation would flatter. Take out what documents share (system prompts, signatures, "
            f"legal notices), or allow it: data.max_overlap is {params.max_overlap:g}.",
        )
    if share >= NOTABLE_OVERLAP:
        reporter.event("evaluation-overlaps", f"{what}.", share=round(share, 6), passage=PASSAGE)
