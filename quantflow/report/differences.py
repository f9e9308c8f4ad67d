"""Two texts side by side, with what differs between them marked."""

import re
from difflib import SequenceMatcher

from markupsafe import Markup

from quantflow.report.text import visible

COMPARED_LENGTH = 800
"""Letters of a text that are compared and shown; a page of a hundred pairs is rendered within a second."""

# Chinese, Japanese and Korean are not written in words that spaces part: each sign by itself.
_PIECE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]|\w+|\s+|[^\w\s]")


def marked(before: str, after: str) -> tuple[Markup, Markup]:
    """Both texts, escaped, with words that the other has not, or has elsewhere, within `<mark>`.

    Args:
        before: The baseline's.
        after: The artifact's.
    """
    old, new = (_PIECE.findall(visible(text[:COMPARED_LENGTH])) for text in (before, after))
    left: list[Markup] = []
    right: list[Markup] = []
    for kind, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for pieces, side in ((old[i:j], left), (new[k:m], right)):
            if pieces:
                form = "{}" if kind == "equal" else "<mark>{}</mark>"
                side.append(Markup(form).format("".join(pieces)))
    return tuple(_ended(parts, text) for parts, text in ((left, before), (right, after)))  # type: ignore[return-value]


def _ended(parts: list[Markup], text: str) -> Markup:
    return Markup("").join(parts) + Markup("…" if len(text) > COMPARED_LENGTH else "")
