"""CSV and Parquet: a document a row, every mistake with its line or row."""

import csv
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from quantflow.data.fields import columns_of, missing_columns, to_record
from quantflow.data.files import DataFile, explained
from quantflow.data.lines import Lines
from quantflow.data.params import ReadParams
from quantflow.data.paths import first_name
from quantflow.data.record import MAX_DOCUMENT, Mistake, Record
from quantflow.errors import DataError

_DELIMITERS = (",", ";", "\t", "|")
_BATCH_BYTES = 8 << 20
"""Bytes of a Parquet file's rows that become Python values at once."""

_MOST_ROWS = 1024
_COLUMNS_HINT = "Name the columns that hold the documents in data.fields, such as `fields: {text: body}`."


def read_csv(lines: Lines, file: DataFile, reading: ReadParams) -> Iterator[Record | Mistake]:
    """Read rows under a header; a quoted cell may go over several lines.

    Raises:
        DataError: The header lacks the columns that hold documents, or a quote is never closed.
    """
    csv.field_size_limit(MAX_DOCUMENT)  # of the process; nothing else here reads CSV
    source = _Source(lines)
    delimiter = _delimiter(source, file, reading)
    rows = csv.reader(source, delimiter=delimiter, strict=True)
    header = _header(rows, source, file, reading)
    texts = {first_name(path) for path in reading.fields.text} | set(reading.fields.text)
    while True:
        start = lines.where(lines.number + 1)
        source.mistake = None
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield _csv_mistake(error, start)
            continue
        if row is None:
            return
        if source.mistake is not None:
            yield source.mistake
        elif len(row) != len(header) and row:
            yield Mistake(start, f"has {len(row)} cells where the header has {len(header)}")
        elif row:
            # An empty cell is how a table says that there is nothing; an empty text is one, and a mistake.
            cells = zip(header, row, strict=True)
            named = {name: cell if cell or name in texts else None for name, cell in cells}
            yield to_record(named, start, file.slice, reading)


class _Source:
    """A file's lines as the CSV reader wants them, with the last mistake among them."""

    def __init__(self, lines: Lines) -> None:
        self._lines = iter(lines)
        self._again: list[str] = []
        self.mistake: Mistake | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._again:
            return self._again.pop()
        line = next(self._lines)
        self.mistake = self.mistake or line.mistake
        return line.text

    def put_back(self, text: str) -> None:
        self._again.append(text)


def _csv_mistake(error: csv.Error, where: str) -> Mistake:
    if "field larger than field limit" in str(error):
        raise DataError(
            f"a cell in this row is longer than {MAX_DOCUMENT >> 20} MiB: its quote is probably never closed",
            where=where,
            hint='Inside a quoted cell a quote is written twice: "".',
        ) from error
    words = "a quote is opened in this row and never closed" if "unexpected end" in str(error) else str(error)
    return Mistake(where, f"not valid CSV: {words}")


def _delimiter(source: _Source, file: DataFile, reading: ReadParams) -> str:
    """The one that the recipe names, or under which the header has the columns that are wanted."""
    if reading.delimiter != "auto":
        return reading.delimiter
    first = next(source, None)
    if first is None:
        return ","
    source.put_back(first)
    fitting = [d for d in _DELIMITERS if missing_columns(reading, _cells(first, d)) is None]
    # Under one that does not occur, the whole line is a single column: no evidence, but right for one column.
    occurring = [d for d in fitting if d in first]
    if len(occurring) > 1:
        raise DataError(
            "the header can be read with several delimiters",
            where=f"{file.shown}:1",
            hint="Set data.delimiter to comma, semicolon, tab or pipe.",
        )
    return (occurring or fitting or [max(_DELIMITERS, key=first.count)])[0]


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _header(rows: Any, source: _Source, file: DataFile, reading: ReadParams) -> list[str]:
    where = f"{file.shown}:1"
    try:
        header: list[str] | None = next(rows, None)
    except csv.Error as error:
        raise DataError(f"the header is not valid CSV: {error}", where=where) from error
    if header is None:
        return []
    if source.mistake is not None:
        raise DataError(source.mistake.message, where=where, hint="Set data.encoding to what it is.")
    repeated = sorted({name for name in header if header.count(name) > 1 and name})
    problem = (
        f"the column `{repeated[0][:40]}` is there twice" if repeated else missing_columns(reading, header)
    )
    if problem is not None:
        raise DataError(
            problem,
            where=where,
            hint=f"{_COLUMNS_HINT} The first line has to be the header.",
        )
    return header


def read_parquet(
    file: DataFile, reading: ReadParams, advance: Callable[[int], None]
) -> Iterator[Record | Mistake]:
    """Read rows batch by batch, of the columns that hold documents only.

    Args:
        file: The file.
        reading: The field mapping.
        advance: Told the bytes on disk of what is done.

    Raises:
        DataError: It is not a Parquet file, is damaged, or lacks the columns that hold documents.
    """
    row = 0
    try:
        with explained(file.shown), file.path.open("rb") as raw:
            # Without these two, a whole row group is read before its first row is there.
            table = pq.ParquetFile(raw, pre_buffer=False, buffer_size=1 << 20)
            names = list(table.schema_arrow.names)
            problem = missing_columns(reading, names)
            if problem is not None:
                raise DataError(
                    problem,
                    where=file.shown,
                    hint=_COLUMNS_HINT,
                )
            done, size, rows = 0, file.path.stat().st_size, table.metadata.num_rows
            columns = columns_of(reading, names)
            for batch in table.iter_batches(_batch_rows(table.metadata), columns=columns, use_threads=False):
                for values in batch.to_pylist():
                    row += 1
                    yield _row(values, f"{file.shown}, row {row}", file, reading)
                advance(size * row // rows - done)
                done = size * row // rows
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(
            f"the Parquet file cannot be read: {str(error).splitlines()[0][:200]}",
            where=f"{file.shown}, after row {row}" if row else file.shown,
            hint="Copy or write it again.",
        ) from error


def _batch_rows(metadata: Any) -> int:
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    largest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return int(min(max(_BATCH_BYTES // max(largest, 1), 1), _MOST_ROWS))


def _row(values: dict[str, Any], where: str, file: DataFile, reading: ReadParams) -> Record | Mistake:
    try:
        decoded = {name: v.decode("utf-8") if isinstance(v, bytes) else v for name, v in values.items()}
    except UnicodeDecodeError as error:
        return Mistake(where, f"not UTF-8 (byte {error.start + 1} of the value)", undecodable=True)
    return to_record(decoded, where, file.slice, reading)
