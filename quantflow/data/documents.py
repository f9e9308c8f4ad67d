"""What became of every document and every token: documents.json and accounting.json."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

SplitName = Literal["calibration", "selection", "evaluation"]
MIN_DOCUMENTS = 30
"""Fewest documents a criterion is decided on: with fewer clusters the robust variance, and the normal
approximation behind it, are too unreliable to ship on."""

SPLITS: tuple[SplitName, ...] = ("calibration", "selection", "evaluation")

_DOCUMENTS_FILE = "documents.json"
_ACCOUNTING_FILE = "accounting.json"


@dataclass(frozen=True)
class Document:
    """One document of the draw; windows refer to it by its position in documents.json.

    Attributes:
        id: As given in the data, else the beginning of its content's SHA-256.
        slice: As given in the data, else the stem of its file's name.
        split: The one set it belongs to.
        tokens: Its length in tokens.
        near: Position of the first of its near duplicates, all in the same split; None where it has none.
    """

    id: str
    slice: str
    split: SplitName
    tokens: int
    near: int | None = None


class Counts(BaseModel):
    """Where the drawn documents and tokens of one slice, or of one split, went.

    `tokens_read` = `tokens_duplicate` + `tokens_used` + `tokens_incomplete` + `tokens_undrawn` +
    `tokens_too_short`: no token is lost, none invented.

    Attributes:
        documents_read: Documents drawn, copies included.
        documents_duplicate: Exact copies (same tokens) that were dropped; counted where the kept one went.
        documents_near_duplicate: Documents beside the first in groups of near duplicates; they are kept.
        documents_used: Documents with at least one token in a window.
        documents_truncated: Those of them with tokens in no window.
        documents_too_short: Documents in which nothing can be scored.
        tokens_read: Tokens of the documents read.
        tokens_duplicate: Tokens of the copies that were dropped.
        tokens_used: Tokens in windows, each counted once however many windows it is in.
        tokens_incomplete: Tokens after the last whole calibration window.
        tokens_undrawn: Tokens in windows beyond the number asked for.
        tokens_too_short: Tokens in selection or evaluation windows too short to score anything.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    documents_read: int = 0
    documents_duplicate: int = 0
    documents_near_duplicate: int = 0
    documents_used: int = 0
    documents_truncated: int = 0
    documents_too_short: int = 0
    tokens_read: int = 0
    tokens_duplicate: int = 0
    tokens_used: int = 0
    tokens_incomplete: int = 0
    tokens_undrawn: int = 0
    tokens_too_short: int = 0


class SplitAccounting(BaseModel):
    """What became of one split.

    Attributes:
        length: Tokens of a calibration window; most tokens of a selection or evaluation window.
        stride: Tokens from one window of a document to the next; None for calibration, which is packed.
        bos: Whether every window begins with BOS.
        windows: Windows written.
        windows_available: Whole windows there were to draw from, or windows cut.
        windows_too_short: Windows dropped because nothing in them could be scored.
        separators: EOS tokens put between packed documents, part of no document.
        bos_added: BOS tokens put before windows, part of no document.
        scored_positions: Positions with a scored next token; 0 for calibration.
        overlap: Fraction of the windows' tokens in passages that calibration windows have word for word, or,
            for evaluation, selection windows; None for calibration.
        documents_overlapping: Documents with such a passage; None for calibration.
        total: Counts of all slices together.
        slices: Counts of each slice.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    length: int
    stride: int | None = None
    bos: bool = False
    windows: int
    windows_available: int
    windows_too_short: int
    separators: int
    bos_added: int = 0
    scored_positions: int
    overlap: float | None = None
    documents_overlapping: int | None = None
    total: Counts
    slices: Mapping[str, Counts]


class FileKind(BaseModel):
    """Files that were read in the same way.

    Attributes:
        format: `jsonl`, `json`, `txt`, `csv` or `parquet`.
        compression: `gz`, `bz2`, `xz`, `zst` or `zip`; empty where there is none.
        encoding: Text encoding; empty for Parquet.
        told_by: What says so: `given`, `mark`, `utf-8` or `detected`; empty for Parquet.
        files: How many files.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str
    compression: str
    encoding: str
    told_by: str
    files: int


class Reading(BaseModel):
    """What was read of the files, whether it was drawn or not.

    `documents` = the total's `documents_read` + `documents_undrawn` + `documents_refused`.

    Attributes:
        documents: Documents in the files, copies included.
        characters: Characters of their texts.
        documents_undrawn: Documents that the windows asked for do not need; they are not tokenized.
        characters_undrawn: Characters of their texts.
        documents_undecodable: Lines or rows left out because their bytes are no text in the file's encoding.
        documents_invalid: Lines or rows left out because they are no document.
        documents_refused: Conversations left out because the chat template refuses them.
        slices: Documents of each slice.
        kinds: The files, by how they were read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    documents: int = 0
    characters: int = 0
    documents_undrawn: int = 0
    characters_undrawn: int = 0
    documents_undecodable: int = 0
    documents_invalid: int = 0
    documents_refused: int = 0
    slices: Mapping[str, int] = {}
    kinds: tuple[FileKind, ...] = ()


class NearDuplicates(BaseModel):
    """Groups of drawn documents that are nearly the same.

    Attributes:
        similarity: Jaccard similarity from which two documents are near duplicates.
        groups: Groups of two or more.
        documents: Documents in them.
        largest: Documents of the largest.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    similarity: float
    groups: int
    documents: int
    largest: int


class Accounting(BaseModel):
    """Every document and token of the data, accounted for.

    Attributes:
        seed: Seed of the draws, the split and the packing.
        reading: What was read of the files.
        near_duplicates: Documents that are nearly the same.
        total: Counts of all that was drawn.
        splits: What became of each split.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int
    reading: Reading = Reading()
    near_duplicates: NearDuplicates | None = None
    total: Counts
    splits: Mapping[SplitName, SplitAccounting]


def save_documents(output: Path, documents: Sequence[Document]) -> None:
    """Write documents.json."""
    _write(output / _DOCUMENTS_FILE, [asdict(document) for document in documents])


def load_documents(stage_output: Path) -> tuple[Document, ...]:
    """Read the documents that the data stage kept, in the order that windows refer to."""
    records = json.loads((stage_output / _DOCUMENTS_FILE).read_text(encoding="utf-8"))
    return tuple(Document(**record) for record in records)


def save_accounting(output: Path, accounting: Accounting) -> None:
    """Write accounting.json."""
    _write(output / _ACCOUNTING_FILE, accounting.model_dump(mode="json"))


def load_accounting(stage_output: Path) -> Accounting:
    """Read what the data stage counted."""
    return Accounting.model_validate_json((stage_output / _ACCOUNTING_FILE).read_text(encoding="utf-8"))


def _write(path: Path, value: object) -> None:
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
