"""Texts of models, data sets and files, made fit for a page: nothing invisible, nothing endless."""

import re
from typing import Literal

from markupsafe import Markup, escape

from quantflow.report.figures import count
from quantflow.report.wording import Wording

TextLevel = Literal["full", "redacted", "none"]
"""How much of texts of models and data a report holds: all, a number for every word, nothing."""

SHOWN_LENGTH = 2000
"""Letters of one text that a page shows; the rest is in report.json, and the page stays small."""

ANSWER_LENGTH = 160
"""Letters of an answer or a prompt that stand in a row of a table."""

# What no reader sees and what turns the rest of a line around: control characters but tab and line feed,
# and Unicode's embeddings, overrides and isolates (UAX #9). Single marks of direction are part of text.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]")


def visible(text: str) -> str:
    """The text with a name in place of each character that is not seen: `[U+0000]`."""
    return _UNSEEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)


def shown(text: str, words: Wording) -> str:
    """The text as a page shows it: nothing unseen in it, and its beginning only where it is very long."""
    if len(text) > SHOWN_LENGTH:
        left_out = words("page.cut", count=count(len(text) - SHOWN_LENGTH))
        return unbroken(visible(text[:SHOWN_LENGTH])) + left_out
    return unbroken(visible(text))


def unbroken(text: str) -> str:
    """The text with its percentages on one line each."""
    return text.replace(" %", "\u00a0%")


def whole(text: str) -> Markup:
    """The text in full, escaped, for a place that is there for long texts."""
    return escape(visible(text))


def beginning(text: str) -> str:
    """The first letters of an answer in a table."""
    return text if len(text) <= ANSWER_LENGTH else f"{text[:ANSWER_LENGTH]}…"


def ending(text: str) -> str:
    """The last letters of a prompt: what was to be gone on with."""
    return text if len(text) <= ANSWER_LENGTH else f"…{text[-ANSWER_LENGTH:]}"


def token(text: str | None) -> str:
    """One token, its blanks and line feeds to be seen; a dash where there is none to show."""
    if text is None:
        return "–"
    return beginning(text.replace(" ", "␣").replace("\n", "↵"))
