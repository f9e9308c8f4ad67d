"""A recipe before validation: plain nodes that know where they were written. Immutable."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Loc = tuple[str | int, ...]


@dataclass(frozen=True, order=True)
class Place:
    """Where something was written; sorts in reading order, overrides after the file.

    Attributes:
        order: Line in the file, from 1; past every line for an override.
        text: What a person is shown, `recipes/quickstart.yaml:12` or `--set data.seed=1`.
    """

    order: int
    text: str


@dataclass(frozen=True)
class Problem:
    """One mistake.

    Attributes:
        place: Where it was made.
        key: Dotted path of the key it concerns; empty if it concerns none.
        message: What is wrong.
        hint: What to do about it; empty where the message says it.
    """

    place: Place
    key: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        """Place, key and message on one line, the hint on the next."""
        line = ": ".join(part for part in (self.place.text, self.key, self.message) if part)
        return f"{line}\n  {self.hint}" if self.hint else line


@dataclass(frozen=True)
class Scalar:
    """A text as written; what it means is decided once overrides are in.

    Attributes:
        text: The text, without quotes.
        plain: Whether it was written without quotes, so that it may be a number, a truth value or null.
        place: Where.
    """

    text: str
    plain: bool
    place: Place


@dataclass(frozen=True)
class ListNode:
    """A YAML sequence."""

    items: tuple["Node", ...]
    place: Place


@dataclass(frozen=True)
class MapNode:
    """A YAML mapping; `place` of an entry's value is the line of its key."""

    entries: Mapping[str, "Node"]
    place: Place


Node = Scalar | ListNode | MapNode


def walk(node: Node, loc: Loc = ()) -> Iterator[tuple[Loc, Node]]:
    """Every node with its place in the tree, parents first."""
    yield loc, node
    if isinstance(node, MapNode):
        for key, child in node.entries.items():
            yield from walk(child, (*loc, key))
    elif isinstance(node, ListNode):
        for index, child in enumerate(node.items):
            yield from walk(child, (*loc, index))


def dotted(loc: Loc) -> str:
    """A place in the tree as people write it: `artifacts[0].group_size`."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
