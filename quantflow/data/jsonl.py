"""JSONL: one JSON object a line, every mistake with its line."""

import json
from collections.abc import Iterator

from quantflow.data.fields import to_record
from quantflow.data.files import DataFile
from quantflow.data.lines import Lines
from quantflow.data.params import ReadParams
from quantflow.data.record import Mistake, Record


def read_jsonl(lines: Lines, file: DataFile, reading: ReadParams) -> Iterator[Record | Mistake]:
    """Read documents line by line, so that a file may be larger than memory; blank lines are skipped."""
    for line in lines:
        if line.mistake is not None:
            yield line.mistake
        elif not line.text.isspace():
            yield _document(line.text, lines.where(line.number), file, reading)


def is_jsonl(lines: Lines) -> bool:
    """Whether a file begins like JSONL: an object that is whole on its line, and more after it."""
    filled = (line for line in lines if line.mistake is not None or not line.text.isspace())
    first = next(filled, None)
    return first is not None and _is_object(first.text) and next(filled, None) is not None


def _document(text: str, where: str, file: DataFile, reading: ReadParams) -> Record | Mistake:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return Mistake(where, f"not valid JSON: {error.msg} (column {error.colno})")
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or brackets without end
        return Mistake(where, f"not valid JSON: {error}")
    return to_record(value, where, file.slice, reading)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
