"""Business text as it comes: files of several formats and encodings as one stream of documents."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from quantflow.data.encoding import Encoding
from quantflow.data.files import DataFile
from quantflow.data.json_elements import read_json
from quantflow.data.jsonl import is_jsonl, read_jsonl
from quantflow.data.lines import Lines, open_lines
from quantflow.data.params import ReadParams
from quantflow.data.plain_text import read_text
from quantflow.data.record import Mistake, Record
from quantflow.data.tables import read_csv, read_parquet

_STEP = 1 << 16
"""Bytes between two reports of progress."""

_READERS: dict[str, Callable[[Lines, DataFile, ReadParams], Iterator[Record | Mistake]]] = {
    "jsonl": read_jsonl,
    "json": read_json,
    "txt": read_text,
    "csv": read_csv,
}


def read_records(
    files: Sequence[DataFile],
    encodings: Sequence[Encoding | None],
    reading: ReadParams,
    advance: Callable[[int], None],
) -> Iterator[Record | Mistake]:
    """Read documents one by one, so that a file may be larger than memory.

    Args:
        files: What to read.
        encodings: The encoding of each file; None where the format has its own.
        reading: How files become documents.
        advance: Told the bytes on disk of what is done.

    Raises:
        DataError: A file cannot be opened or read on.
    """
    for file, encoding in zip(files, encodings, strict=True):
        if encoding is None:
            yield from read_parquet(file, reading, advance)
        else:
            yield from _read_lines(_as_it_is(file, encoding), encoding, reading, advance)


def _as_it_is(file: DataFile, encoding: Encoding) -> DataFile:
    """JSONL often goes by the name of JSON."""
    if file.format != "json":
        return file
    with open_lines(file, encoding) as lines:
        return replace(file, format="jsonl") if is_jsonl(lines) else file


def _read_lines(
    file: DataFile, encoding: Encoding, reading: ReadParams, advance: Callable[[int], None]
) -> Iterator[Record | Mistake]:
    done = file.begins_at
    with open_lines(file, encoding) as lines:
        for outcome in _READERS[file.format](lines, file, reading):
            yield outcome
            position = lines.position()
            if position - done >= _STEP:
                advance(position - done)
                done = position
        advance(file.ends_at - done)
