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
    """One document that was kept; windows refer to it by its position in documents.json.

    Attributes:
        id: As given in the data, else the beginning of its content's SHA-256.
        slice: As given in the data, else the stem of its file's name.
        split: The one set it belongs to.
        tokens: Its length in tokens.
    """

    id: str
    slice: str
    split: SplitName
    tokens: int


class Counts(BaseModel):
    """Where the documents and tokens of one slice, or of one split, went.

    `tokens_read` = `tokens_duplicate` + `tokens_used` + `tokens_incomplete` + `tokens_undrawn` +
    `tokens_too_short`: no token is lost, none invented.

    Attributes:
        documents_read: Documents in the files, copies included.
        documents_duplicate: Exact copies (same tokens) that were dropped; counted where the kept one went.
        documents_used: Documents with at least one token in a window.
        tokens_read: Tokens of the documents read.
        tokens_duplicate: Tokens of the copies that were dropped.
        tokens_used: Tokens in windows.
        tokens_incomplete: Tokens after the last whole calibration window.
        tokens_undrawn: Tokens in whole calibration windows beyond the number asked for.
        tokens_too_short: Tokens in selection or evaluation windows too short to score anything.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    documents_read: int = 0
    documents_duplicate: int = 0
    documents_used: int = 0
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
        windows: Windows written.
        windows_available: Whole windows there were to draw from, or windows cut.
        windows_too_short: Windows dropped because nothing in them could be scored.
        separators: EOS tokens put between packed documents, part of no document.
        scored_positions: Positions with a scored next token; 0 for calibration.
        total: Counts of all slices together.
        slices: Counts of each slice.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    length: int
    windows: int
    windows_available: int
    windows_too_short: int
    separators: int
    scored_positions: int
    total: Counts
    slices: Mapping[str, Counts]


class Accounting(BaseModel):
    """Every document and token of the data, accounted for.

    Attributes:
        seed: Seed of the split, the packing and the draw.
        total: Counts of everything.
        splits: What became of each split.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int
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
