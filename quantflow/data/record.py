"""A document before it is tokenized, and why something is none."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MAX_DOCUMENT = 8 << 20
"""Bytes of the longest line or document: more than twice the longest novels. What is longer is an archive,
and would have to be in memory as a whole."""

_INSTRUCTIONS = ("system", "developer")


@dataclass(frozen=True)
class Record:
    """One document before it is tokenized; has either text or messages.

    Attributes:
        where: `file:line`, or file and row.
        id: As given; None where there is none.
        slice: As given, else the file's.
        content: The text, or the messages of a conversation.
        tools: Tools offered in the conversation; None where there are none.
        digest: SHA-256 of content and tools alone, whatever file, line, id or slice they came with.
    """

    where: str
    id: str | None
    slice: str
    content: str | list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    digest: str

    @property
    def own_text(self) -> str:
        """The text, or what is said and called in the conversation; instructions aside, which many share."""
        if isinstance(self.content, str):
            return self.content
        own = [message for message in self.content if message["role"] not in _INSTRUCTIONS]
        return "\n".join(part for message in own or self.content for part in _parts(message))

    @property
    def characters(self) -> int:
        """Length of the text, or of all that is said."""
        if isinstance(self.content, str):
            return len(self.content)
        return sum(len(message["content"] or "") for message in self.content)


def _parts(message: Mapping[str, Any]) -> Iterator[str]:
    if message["content"]:
        yield message["content"]
    for call in message.get("tool_calls", ()):
        function = call["function"]
        yield f"{function['name']} {json.dumps(function['arguments'], sort_keys=True, ensure_ascii=False)}"


@dataclass(frozen=True)
class Mistake:
    """A line or row that cannot be used.

    Attributes:
        where: `file:line`, or file and row.
        message: Why, in plain words.
        undecodable: Whether its bytes are no text in the file's encoding.
    """

    where: str
    message: str
    undecodable: bool = False


def digest_of(content: str | list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
    """SHA-256 of a document.

    Raises:
        UnicodeEncodeError: It holds half of a surrogate pair.
        ValueError: It holds a number that JSON has not, such as NaN.
        RecursionError: It is nested too deep.
    """
    whole = content if tools is None else {"messages": content, "tools": tools}
    canonical = json.dumps(whole, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def kind_of(value: object) -> str:
    """A value of JSON in plain words."""
    if isinstance(value, str):
        return "an empty string" if not value.strip() else "a string"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    return f"a value of type {type(value).__name__}"
