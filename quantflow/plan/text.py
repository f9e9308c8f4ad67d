"""How many tokens a recipe's text has: as counted by the data stage, or estimated from a sample."""

import time
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Literal

from quantflow.data.documents import load_accounting
from quantflow.data.jsonl import Record, read_records
from quantflow.data.params import DataParams
from quantflow.errors import DataError

# Read from every file to estimate the rest of it: some hundred documents, tokenized in a moment.
SAMPLE_BYTES = 128 << 10
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
        file_bytes: Size of the text files; 0 where the data stage has counted already.
        total_tokens: Tokens of all documents.
        calibration_windows: Calibration windows.
        calibration_length: Tokens of each.
        evaluation_windows: Evaluation windows.
        evaluation_tokens: Their tokens.
        positions: Scored positions.
        reading_seconds: Processor time to read and tokenize all of it; None where no sample could be timed.
    """

    known_by: Literal["counted", "sampled", "assumed"]
    file_bytes: int
    total_tokens: int
    calibration_windows: int
    calibration_length: int
    evaluation_windows: int
    evaluation_tokens: int
    positions: int
    reading_seconds: float | None = None

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
    return TextSize(
        known_by="counted",
        file_bytes=0,
        total_tokens=accounting.total.tokens_read,
        calibration_windows=calibration.windows,
        calibration_length=calibration.length,
        evaluation_windows=evaluation.windows,
        evaluation_tokens=evaluation.total.tokens_used,
        positions=evaluation.scored_positions,
    )


def estimated_text(params: DataParams, tokenizer: Path | None) -> TextSize:
    """Estimate tokens and windows from the beginning of every file.

    Args:
        params: Of the data stage.
        tokenizer: The model's tokenizer.json; None where it is not here.

    Raises:
        DataError: A file cannot be read.
    """
    count = _tokens_by(tokenizer)
    documents, tokens, seconds, file_bytes = 0.0, 0.0, 0.0, 0
    lengths: list[int] = []
    for path in map(Path, params.files):
        size, begun = path.stat().st_size, time.process_time()
        sample = _Sample()
        found = [count(record) for record in sample.records(path)]
        scale = max(1.0, size / sample.bytes) if sample.bytes else 0.0
        seconds += scale * (time.process_time() - begun)
        documents += scale * len(found)
        tokens += scale * sum(found)
        lengths += found
        file_bytes += size
    windows = min(
        params.calibration_windows, int(tokens * params.calibration_share) // params.calibration_length
    )
    pieces = sum(ceil(length / params.evaluation_length) for length in lengths) / max(1, len(lengths))
    evaluation_windows = round(documents * params.evaluation_share * pieces)
    evaluation_tokens = round(tokens * params.evaluation_share)
    return TextSize(
        known_by="assumed" if tokenizer is None else "sampled",
        file_bytes=file_bytes,
        total_tokens=round(tokens),
        calibration_windows=windows,
        calibration_length=params.calibration_length,
        evaluation_windows=evaluation_windows,
        evaluation_tokens=evaluation_tokens,
        positions=max(0, evaluation_tokens - evaluation_windows),
        reading_seconds=None if tokenizer is None else seconds,
    )


class _Sample:
    """Documents from the beginning of a file, and how many bytes of it they took."""

    def __init__(self) -> None:
        self.bytes = 0

    def records(self, path: Path) -> Iterator[Record]:
        """The first documents; a file with none that can be read is for the run to refuse."""
        for record in read_records([path], self._advance):
            if isinstance(record, Record):
                yield record
            if self.bytes >= SAMPLE_BYTES:
                return

    def _advance(self, size: int) -> None:
        self.bytes += size


def _tokens_by(tokenizer: Path | None) -> Callable[[Record], int]:
    if tokenizer is None:
        return lambda record: max(1, round(len(_text(record)) / CHARACTERS_PER_TOKEN)) + _markup(record)
    from tokenizers import Tokenizer

    try:
        encode: Callable[[str], Sized] = Tokenizer.from_file(str(tokenizer)).encode
    except Exception as error:  # the library raises plain Exceptions
        raise DataError(f"the model's tokenizer cannot be read: {error}", where=str(tokenizer)) from error
    return partial(_count, encode)


def _count(encode: Callable[[str], Sized], record: Record) -> int:
    return len(encode(_text(record))) + _markup(record)


def _text(record: Record) -> str:
    if isinstance(record.content, str):
        return record.content
    return "\n".join(str(message["content"]) for message in record.content)


def _markup(record: Record) -> int:
    return 0 if isinstance(record.content, str) else TOKENS_PER_MESSAGE * len(record.content)
