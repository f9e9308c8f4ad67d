"""Texts of models, data sets and files, made fit for a page: nothing invisible, nothing endless."""

import re

from markupsafe import Markup, escape

from quantflow.report.figures import count
from quantflow.report.wording import Wording

SHOWN_LENGTH = 2000
"""Letters of one text that a page shows; the rest is in report.json, and the page stays small."""

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
