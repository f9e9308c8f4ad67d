"""How many tokens a recipe's text has: as counted by the data stage, or estimated from a sample."""

import time
from collections.abc import Callable, Sized
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from quantflow.data.documents import load_accounting
from quantflow.data.need import need_of
from quantflow.data.params import DataParams
from quantflow.data.record import Record
from quantflow.data.windows import EVALUATION_FILE, SELECTION_FILE, load_windows
from quantflow.errors import DataError

if TYPE_CHECKING:  # they bring pyarrow, which a run that has all its data does without
    from quantflow.data.encoding import Encoding
    from quantflow.data.files import DataFile

# Read from every file to estimate the rest of it: some hundred documents, tokenized in a moment.
SAMPLE_BYTES = 128 << 10
# A file of up to this size is read as a whole to tell its encoding, as the data stage does; a longer one is
# taken for UTF-8.
LARGEST_PROBED = 16 << 20
# Characters of a token where no tokenizer is at hand: about right for English prose and the usual
# vocabularies, too many for other languages.
CHARACTERS_PER_TOKEN = 4.0
# Tokens that a chat template puts around a message: its role and its ends.
TOKENS_PER_MESSAGE = 5


@dataclass(frozen=True)
class TextSize:
    """Tokens and windows of the sets that cost something.

    Attributes:
        known_by: `counted` by the data stage; `sampled` with the model's tokenizer; `assumed` from the number
            of characters.
        held_tokens: Tokens of the documents that are drawn to make windows of.
        calibration_windows: Calibration windows.
        calibration_length: Tokens of each.
        evaluation_windows: Evaluation windows.
        evaluation_tokens: Their tokens, those that several windows share counted in each.
        positions: Scored positions.
        reading_seconds: Processor time to read and tokenize all of it; None where no sample could be timed.
        selection_tokens: Tokens of the selection windows, as of the evaluation windows.
        selection_positions: Their scored positions.
    """

    known_by: Literal["counted", "sampled", "assumed"]
    held_tokens: int
    calibration_windows: int
    calibration_length: int
    evaluation_windows: int
    evaluation_tokens: int
    positions: int
    reading_seconds: float | None = None
    selection_tokens: int = 0
    selection_positions: int = 0

    @property
    def calibration_tokens(self) -> int:
        """Tokens of all calibration windows."""
        return self.calibration_windows * self.calibration_length

    @property
    def evaluation_length(self) -> int:
        """Tokens of an evaluation window, on average."""
        return ceil(self.evaluation_tokens / max(1, self.evaluation_windows))


def counted_text(stage_output: Path) -> TextSize:
    """What the data stage counted.

    Args:
        stage_output: Its finished output.
    """
    accounting = load_accounting(stage_output)
    calibration, evaluation = accounting.splits["calibration"], accounting.splits["evaluation"]
    windows = load_windows(stage_output / EVALUATION_FILE)
    return TextSize(
        known_by="counted",
        held_tokens=accounting.total.tokens_read,
        calibration_windows=calibration.windows,
        calibration_length=calibration.length,
        evaluation_windows=len(windows),
        evaluation_tokens=len(windows.tokens),
        positions=evaluation.scored_positions,
        selection_tokens=len(load_windows(stage_output / SELECTION_FILE).tokens),
        selection_positions=accounting.splits["selection"].scored_positions,
    )


def estimated_text(params: DataParams, tokenizer: Path | None) -> TextSize:
    """Estimate tokens and windows from the beginning of every file.

    Args:
        params: Of the data stage.
        tokenizer: The model's tokenizer.json; None where it is not here.

    Raises:
        DataError: A file cannot be read, or holds nothing in its beginning that can be used.
    """
    from quantflow.data.files import find_files

    samples = [_sample(file, params, _tokens_by(tokenizer)) for file in find_files(params)]
    documents = sum(sample.scale * len(sample.lengths) for sample in samples)
    if not documents:
        raise DataError("the beginnings of the files hold no document that can be read")
    length = sum(sample.scale * sum(sample.lengths) for sample in samples) / documents
    pieces = sum(s.scale * sum(_windows_of(n, params) for n in s.lengths) for s in samples) / documents
    need = need_of(params)
    # Documents are drawn until all needs are filled.
    drawn = min(documents, max(need.tokens / length, need.windows / pieces, float(need.documents)))
    available = int(drawn * length * params.calibration_share) // params.calibration_length
    windows = min(float(params.evaluation_windows), drawn * params.evaluation_share * pieces)
    selection = min(float(params.evaluation_windows), drawn * params.selection_share * pieces)
    beside = selection / windows if windows else 0.0
    own_tokens = windows * length / pieces
    shared = (params.evaluation_length - params.evaluation_stride) * (1 - 1 / pieces)
    reading = sum(s.scale * (s.reading + s.tokenizing * drawn / documents) for s in samples)
    return TextSize(
        known_by="assumed" if tokenizer is None else "sampled",
        held_tokens=round(drawn * length),
        calibration_windows=min(params.calibration_windows, available),
        calibration_length=params.calibration_length,
        evaluation_windows=round(windows),
        evaluation_tokens=round(own_tokens + windows * shared),
        positions=max(0, round(own_tokens - windows)),
        reading_seconds=None if tokenizer is None else reading,
        selection_tokens=round(beside * (own_tokens + windows * shared)),
        selection_positions=max(0, round(beside * (own_tokens - windows))),
    )


@dataclass(frozen=True)
class _Sample:
    """The beginning of a file.

    Attributes:
        lengths: Tokens of its documents.
        scale: How many times as large the whole file is.
        reading: Processor time to read it, seconds.
        tokenizing: Processor time to tokenize it, seconds.
    """

    lengths: tuple[int, ...]
    scale: float
    reading: float
    tokenizing: float


def _sample(file: "DataFile", params: DataParams, count: Callable[[Record], int]) -> _Sample:
    """A file's first documents; those that cannot be used are for the run to refuse."""
    from quantflow.data.read import read_records

    done, begun = 0, time.process_time()

    def advance(size: int) -> None:
        nonlocal done
        done += size

    records: list[Record] = []
    for record in read_records([file], [_encoding(file, params)], params.reading, advance):
        if isinstance(record, Record):
            records.append(record)
        if done >= SAMPLE_BYTES:
            break
    read = time.process_time()
    lengths = tuple(count(record) for record in records)
    size = file.ends_at - file.begins_at
    scale = max(1.0, size / done) if done else 1.0
    return _Sample(lengths, scale, read - begun, time.process_time() - read)


def _encoding(file: "DataFile", params: DataParams) -> "Encoding | None":
    from quantflow.data.encoding import Encoding, encoding_of

    asked = params.reading.encoding
    if file.format == "parquet":
        return None
    if asked == "auto" and file.ends_at - file.begins_at > LARGEST_PROBED:
        return Encoding("utf-8", "utf-8")
    return encoding_of(file, asked)


def _windows_of(tokens: int, params: DataParams) -> int:
    """Evaluation windows of a document."""
    beyond = max(0, tokens - params.evaluation_length)
    return 1 + ceil(beyond / params.evaluation_stride)


def _tokens_by(tokenizer: Path | None) -> Callable[[Record], int]:
    if tokenizer is None:
        return lambda record: max(1, round(record.characters / CHARACTERS_PER_TOKEN)) + _markup(record)
    from tokenizers import Tokenizer

    try:
        encode: Callable[[str], Sized] = Tokenizer.from_file(str(tokenizer)).encode
    except Exception as error:  # the library raises plain Exceptions
        raise DataError(f"the model's tokenizer cannot be read: {error}", where=str(tokenizer)) from error
    return lambda record: len(encode(_text(record))) + _markup(record)


def _text(record: Record) -> str:
    if isinstance(record.content, str):
        return record.content
    return "\n".join(message["content"] or "" for message in record.content)


def _markup(record: Record) -> int:
    return 0 if isinstance(record.content, str) else TOKENS_PER_MESSAGE * len(record.content)
