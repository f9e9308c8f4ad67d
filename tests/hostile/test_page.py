"""docs/troubleshooting.md explains messages that the code really has, and none twice."""

import ast
from collections.abc import Iterator
from pathlib import Path

import quantflow
from tests.hostile.page import sections

VARIES = "…"


def texts() -> Iterator[str]:
    """Every text of the package, what is filled in replaced by `…`."""
    for path in Path(quantflow.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if id(node) in docstrings:
                continue
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else VARIES for part in node.values
                )


def test_every_message_on_the_page_is_one_of_the_code() -> None:
    found = set(texts())
    unknown = [
        message
        for messages in sections().values()
        for message in messages
        if not any(stands_in(message.split(VARIES), text) for text in found)
    ]
    assert unknown == []


def stands_in(pieces: list[str], text: str) -> bool:
    """Whether the pieces follow one another in a text."""
    at = 0
    for piece in pieces:
        at = text.find(piece.strip("`. "), at)
        if at < 0:
            return False
    return True


def test_no_message_is_explained_twice() -> None:
    assert all(len(messages) == len(set(messages)) for messages in sections().values())
    assert set(sections()) >= {"The recipe", "The model", "The text", "ONNX", "While it runs"}
