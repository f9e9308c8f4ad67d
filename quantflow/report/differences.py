"""Two texts side by side, with what differs between them marked."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

from markupsafe import Markup

from quantflow.report.text import visible

COMPARED_LENGTH = 600
"""Letters of a text that are compared and shown; a page of a hundred pairs is rendered within a second."""

# A word with the space before it. Chinese, Japanese and Korean are not written in words that spaces part:
# each sign by itself.
_PIECE = re.compile(r"\s*(?:[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]|\w+|[^\w\s])|\s+")


def marked(before: str, after: str) -> tuple[Markup, Markup]:
    """Both texts, escaped, with words that the other has not, or has elsewhere, within `<mark>`.

    Args:
        before: The baseline's.
        after: The artifact's.
    """
    old, new = (_PIECE.findall(visible(text[:COMPARED_LENGTH])) for text in (before, after))
    same = _same_beginning(old, new)
    left, right = [Markup("{}").format("".join(old[:same]))], [Markup("{}").format("".join(new[:same]))]
    # difflib leaves out what is too frequent to compare by: a text of one word repeated would cost minutes.
    for kind, i, j, k, m in SequenceMatcher(None, old[same:], new[same:]).get_opcodes():
        for pieces, side in ((old[same + i : same + j], left), (new[same + k : same + m], right)):
            if pieces:
                form = "{}" if kind == "equal" else "<mark>{}</mark>"
                side.append(Markup(form).format("".join(pieces)))
    return _ended(left, before), _ended(right, after)


def _same_beginning(old: Sequence[str], new: Sequence[str]) -> int:
    for place, (one, other) in enumerate(zip(old, new, strict=False)):
        if one != other:
            return place
    return min(len(old), len(new))


def _ended(parts: Sequence[Markup], text: str) -> Markup:
    return Markup("").join(parts) + Markup("…" if len(text) > COMPARED_LENGTH else "")
