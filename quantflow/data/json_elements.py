"""JSON files: a list of objects, or objects under names; one element in memory at a time."""

import json
import re
from collections.abc import Iterator

from quantflow.data.fields import to_record
from quantflow.data.files import DataFile
from quantflow.data.lines import Lines
from quantflow.data.params import ReadParams
from quantflow.data.record import MAX_DOCUMENT, Mistake, Record
from quantflow.errors import DataError

_BLANKS = re.compile(r"[ \t\r\n]*")
_decoder = json.JSONDecoder()


def read_json(lines: Lines, file: DataFile, reading: ReadParams) -> Iterator[Record | Mistake]:
    """Read the elements of a JSON file one by one.

    Raises:
        DataError: Something is no JSON, so that what comes after it cannot be found.
    """
    for number, key, value in _Elements(lines).read():
        yield to_record(value, lines.where(number), file.slice, reading, key)


class _Elements:
    """The elements of the list or object that a JSON file is, each with its line and its name.

    Text is read as it is needed: an element that does not parse yet is given more, up to `MAX_DOCUMENT`.
    """

    def __init__(self, lines: Lines) -> None:
        self._where = lines.where
        self._chunks = lines.chunks()
        self._text = ""
        self._at = 0
        self._line = 1

    def read(self) -> Iterator[tuple[int, str | None, object]]:
        opening = self._next_character()
        if not opening:
            return
        if opening not in ("[", "{"):
            raise self._error("not valid JSON: a list or an object is wanted")
        self._skip(1)
        closing = "]" if opening == "[" else "}"
        while self._next_character() != closing:
            key = self._key() if opening == "{" else None
            self._next_character()
            number = self._line
            yield number, key, self._value()
            if self._next_character() == ",":
                self._skip(1)
            elif self._next_character() != closing:
                raise self._error(f"not valid JSON: `,` or `{closing}` is wanted after an element")
        self._skip(1)
        if self._next_character():
            raise self._error("not valid JSON: there is more after the end")

    def _key(self) -> str:
        key = self._value()
        if not isinstance(key, str) or self._next_character() != ":":
            raise self._error("not valid JSON: a name in quotes and `:` are wanted")
        self._skip(1)
        return key

    def _value(self) -> object:
        while True:
            try:
                value, end = _decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                ahead = error.pos - self._at
                if self._more():
                    continue
                self._skip(ahead)
                raise self._error(f"not valid JSON: {error.msg}") from error
            except (ValueError, RecursionError) as error:
                raise self._error(f"not valid JSON: {error}") from error
            length = end - self._at
            # A text may have been read up to the middle of a number: what follows shows where it ends.
            if end < len(self._text) or not self._more():
                self._skip(length)
                return value

    def _next_character(self) -> str:
        """The next character that is not blank; empty at the end of the file."""
        while True:
            match = _BLANKS.match(self._text, self._at)
            assert match is not None
            self._skip(match.end() - self._at)
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def _skip(self, characters: int) -> None:
        self._line += self._text.count("\n", self._at, self._at + characters)
        self._at += characters

    def _more(self) -> bool:
        """Read as much again as there is left, so that a long element is parsed few times."""
        rest = self._text[self._at :]
        if len(rest) > MAX_DOCUMENT:
            raise self._error(
                f"an element is longer than {MAX_DOCUMENT >> 20} MiB, or a quote is never closed"
            )
        pieces, size = [rest], 0
        for chunk in self._chunks:
            pieces.append(chunk)
            size += len(chunk)
            if size >= len(rest):
                break
        self._text, self._at = "".join(pieces), 0
        return size > 0

    def _error(self, message: str) -> DataError:
        return DataError(
            message,
            where=self._where(self._line),
            hint="Nothing after this can be read. In JSONL, an object a line, a mistake costs one line.",
        )
