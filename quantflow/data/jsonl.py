"""Business text as it comes: JSONL files read line by line, every mistake with its file and line."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quantflow.errors import DataError

LINE_HINT = "Every line has to be one JSON object with `text` (a string) or `messages` (role and content)."

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


LONGEST_NAME = 200
"""Names of documents and slices are for people; what is longer is text in the wrong place."""


@dataclass(frozen=True)
class Record:
    """One document before it is tokenized; has either text or messages.

    Attributes:
        where: `file:line`.
        id: As given; None where the line has none.
        slice: As given, else the stem of the file's name.
        content: The text, or the messages of a conversation.
        digest: SHA-256 of the content alone, whatever file, line, id or slice it came with.
    """

    where: str
    id: str | None
    slice: str
    content: str | list[dict[str, Any]]
    digest: str


@dataclass(frozen=True)
class Mistake:
    """A line that cannot be used, and why."""

    where: str
    message: str


def read_records(files: Sequence[Path], advance: Callable[[int], None]) -> Iterator[Record | Mistake]:
    """Read documents line by line, so that a file may be larger than memory; blank lines are skipped.

    Args:
        files: JSONL files, UTF-8 (a byte order mark is allowed).
        advance: Told the bytes of every line that is done.

    Raises:
        DataError: A file cannot be opened or read.
    """
    for path in files:
        try:
            with path.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    text = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
                    if text.strip():
                        yield _parse(text, where=f"{path}:{number}", default_slice=path.stem)
                    advance(len(line))
        except OSError as error:
            raise DataError(
                f"the file cannot be read: {error.strerror}",
                where=str(path),
                hint="Check data.files in the recipe.",
            ) from error


def _parse(line: bytes, where: str, default_slice: str) -> Record | Mistake:
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Mistake(where, f"not UTF-8 (byte {error.start + 1} of the line)")
    except json.JSONDecodeError as error:
        return Mistake(where, f"not valid JSON: {error.msg} (column {error.colno})")
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or brackets without end
        return Mistake(where, f"not valid JSON: {error}")
    problem = _problem(value)
    if problem is not None:
        return Mistake(where, problem)
    content = value["text"] if "text" in value else value["messages"]
    name, part = value.get("id"), value.get("slice", default_slice)
    try:
        canonical = json.dumps(content, sort_keys=True, ensure_ascii=False).encode()
        f"{name}{part}".encode()
    except UnicodeEncodeError:
        return Mistake(
            where, "holds half of a surrogate pair (an escape like \\ud83d alone): that is no text"
        )
    return Record(where, name, part, content, hashlib.sha256(canonical).hexdigest())


def _problem(value: object) -> str | None:
    if not isinstance(value, dict):
        return f"a JSON object is wanted, this is {_kind(value)}"
    if "text" in value and "messages" in value:
        return "has both `text` and `messages`; which one is the document?"
    for key in ("id", "slice"):
        if key in value and not (isinstance(value[key], str) and value[key].strip()):
            return f"`{key}` has to be a string that is not empty, this is {_kind(value[key])}"
        if len(value.get(key, "")) > LONGEST_NAME:
            return f"`{key}` is a name of at most {LONGEST_NAME} characters, this has {len(value[key])}"
    if "text" in value:
        return _text_problem(value["text"])
    if "messages" in value:
        return _messages_problem(value["messages"])
    return "has neither `text` nor `messages`"


def _text_problem(text: object) -> str | None:
    if not isinstance(text, str):
        return f"`text` has to be a string, this is {_kind(text)}"
    return None if text.strip() else "`text` is empty"


def _messages_problem(messages: object) -> str | None:
    if not isinstance(messages, list):
        return f"`messages` has to be a list, this is {_kind(messages)}"
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            return f"`messages[{i}]` has to be an object with `role` and `content`, this is {_kind(message)}"
        for key in ("role", "content"):
            if key not in message:
                return f"`messages[{i}]` has no `{key}`"
            if not isinstance(message[key], str):
                return f"`messages[{i}].{key}` has to be a string, this is {_kind(message[key])}"
        if not message["role"].strip():
            return f"`messages[{i}].role` is empty"
    if not any(message["content"].strip() for message in messages):
        return "`messages` is empty" if not messages else "every message is empty"
    return None


def _kind(value: object) -> str:
    if isinstance(value, str):
        return "an empty string" if not value.strip() else "a string"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    return "a list" if isinstance(value, list) else "an object"
