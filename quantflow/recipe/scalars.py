"""What a scalar means: environment variables are filled in, then it may be a number, true, false or null.

YAML 1.1 and 1.2 disagree about some plain texts (`no`, `010`). Where they do the recipe is refused, so that
it means the same to QuantFlow, to the editor and to the next tool; elsewhere YAML 1.2's core schema holds, in
which `1e-2` is a number and `12:30` and `2026-11-30` are text.
"""

import re
import unicodedata
from collections.abc import Mapping

from quantflow.recipe.nodes import ListNode, Loc, MapNode, Node, Problem, dotted

Value = str | int | float | bool | None

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_AMBIGUOUS_BOOLS = frozenset(
    form for word in ("yes", "no", "on", "off") for form in (word, word.title(), word.upper())
)
_INT = re.compile(r"[-+]?[0-9]{1,18}")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_VARIABLE = re.compile(
    r"(?P<escape>\$\$\{)|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<or>:-(?P<default>[^}]*))?\}|(?P<stray>\$\{)"
)


class _ValueRefusedError(Exception):
    """A text without a clear meaning; the arguments are message and hint."""


def to_data(node: Node, environ: Mapping[str, str]) -> tuple[object, list[tuple[Loc, Problem]]]:
    """Turn nodes into plain data: dict, list, str, int, float, bool, None.

    Args:
        node: Root of the recipe, overrides included.
        environ: Environment for `${NAME}` and `${NAME:-default}`.

    Returns:
        The data, and each scalar that could not be read with its problem (in the data it stands as text).
    """
    problems: list[tuple[Loc, Problem]] = []

    def convert(node: Node, loc: Loc) -> object:
        if isinstance(node, MapNode):
            return {key: convert(child, (*loc, key)) for key, child in node.entries.items()}
        if isinstance(node, ListNode):
            return [convert(child, (*loc, index)) for index, child in enumerate(node.items)]
        try:
            text = expand(node.text, environ)
            _refuse_control_characters(text)
            return plain_value(text) if node.plain else text
        except _ValueRefusedError as refused:
            message, hint = refused.args
            problems.append((loc, Problem(node.place, dotted(loc), message, hint)))
            return node.text

    return convert(node, ()), problems


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Fill in `${NAME}` and `${NAME:-default}`; `$${` stands for `${`. What is filled in stays as it is."""

    def replacement(match: re.Match[str]) -> str:
        if match["escape"]:
            return "${"
        if match["stray"]:
            raise _ValueRefusedError(
                f"`{text}` holds a ${{ that is no variable",
                "Write ${NAME} or ${NAME:-default}; $${ stands for the two characters themselves.",
            )
        name = match["name"]
        if match["or"] is not None:
            return environ.get(name) or match["default"]
        if name not in environ:
            raise _ValueRefusedError(
                f"the environment variable {name} is not set", f"Set it, or write ${{{name}:-default}}."
            )
        return environ[name]

    return _VARIABLE.sub(replacement, text)


def _refuse_control_characters(text: str) -> None:
    for character in text:
        # Cc: NUL and its like, which no path can hold. Cs: bytes of the environment that are not UTF-8.
        if unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t":
            raise _ValueRefusedError(f"the text holds the character U+{ord(character):04X}", "Remove it.")


def plain_value(text: str) -> Value:
    """What a text without quotes means."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if text in _AMBIGUOUS_BOOLS:
        meaning = "true" if text.lower() in ("yes", "on") else "false"
        raise _ValueRefusedError(
            f"`{text}` is {meaning} to some YAML readers and text to others",
            f'If text is meant, write "{text}" in quotes; a truth value is true or false.',
        )
    if _LEADING_ZERO.fullmatch(text):
        raise _ValueRefusedError(
            f"`{text}` is an octal number to some YAML readers and a decimal one to others",
            f'Write the number without leading zeros, or "{text}" in quotes for the text.',
        )
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
