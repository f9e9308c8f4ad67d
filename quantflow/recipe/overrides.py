"""`--set key=value`: one value of a recipe from the command line."""

import re
import sys

from quantflow.recipe.document import DEEPEST_NESTING, MalformedError, read_document
from quantflow.recipe.nodes import ListNode, Loc, MapNode, Node, Place, Problem, Scalar, dotted

_PART = re.compile(r"(?P<name>[^.\[\]\s]+)(?P<indices>(\[[0-9]{1,6}\])*)")
_AFTER_EVERY_LINE = sys.maxsize
_FORM = (
    "Write --set key=value with a dotted key, such as --set data.seed=1 or --set artifacts[0].group_size=64."
)


class _NoSuchPlaceError(Exception):
    """The key leads nowhere; the arguments are key, message and hint."""


def apply_overrides(root: Node, overrides: tuple[str, ...]) -> tuple[Node, list[Problem]]:
    """Put each override into the tree, later ones over earlier ones.

    Keys that the recipe does not know are let through here: validation refuses them with the same message as
    in the file. The value is a YAML scalar, or a quoted text or list in YAML's flow style.
    """
    problems: list[Problem] = []
    for override in overrides:
        place = Place(_AFTER_EVERY_LINE, f"--set {override}")
        key, equals, text = override.partition("=")
        loc = _parse_key(key.strip())
        if not equals or loc is None:
            problems.append(Problem(place, "", "this is not an override", _FORM))
            continue
        try:
            root = _with_value(root, loc, _parse_value(text, place), ())
        except MalformedError as error:
            problems.append(Problem(place, dotted(loc), error.problem.message, error.problem.hint))
        except _NoSuchPlaceError as error:
            problems.append(Problem(place, *error.args))
    return root, problems


def _parse_key(key: str) -> Loc | None:
    loc: list[str | int] = []
    for part in key.split("."):
        match = _PART.fullmatch(part)
        if match is None or len(loc) > DEEPEST_NESTING:
            return None
        loc.append(match["name"])
        loc.extend(int(index) for index in re.findall(r"[0-9]+", match["indices"]))
    return tuple(loc)


def _parse_value(text: str, place: Place) -> Node:
    # Anything but a quoted text or a list is taken as it stands: a shell has already eaten its quotes, and a
    # glob (`*.jsonl`) or a title with a colon would be something else to YAML.
    if not text.lstrip().startswith(("[", '"', "'")):
        return Scalar(text.strip(), True, place)
    node, problems = read_document(text, place.text)
    if problems or node is None:
        raise MalformedError(problems[0])
    return _at(node, place)


def _at(node: Node, place: Place) -> Node:
    if isinstance(node, MapNode):
        return MapNode({key: _at(child, place) for key, child in node.entries.items()}, place)
    if isinstance(node, ListNode):
        return ListNode(tuple(_at(child, place) for child in node.items), place)
    return Scalar(node.text, node.plain, place)


def _with_value(node: Node | None, loc: Loc, value: Node, above: Loc) -> Node:
    """Copy `node` with `value` at `loc`; mappings on the way that are missing are made."""
    if not loc:
        return value
    head, rest = loc[0], loc[1:]
    here = dotted(above) or "the recipe"
    if isinstance(node, ListNode):
        index = int(head) if isinstance(head, int) or head.isdecimal() else -1
        if not 0 <= index < len(node.items):
            last = len(node.items) - 1
            raise _NoSuchPlaceError(
                dotted((*above, head)),
                f"{here} has no entry {head}",
                f"It has {here}[0] to {here}[{last}]."
                if last > 0
                else f"It has {here}[0] only."
                if last == 0
                else "",
            )
        child = _with_value(node.items[index], rest, value, (*above, index))
        return ListNode((*node.items[:index], child, *node.items[index + 1 :]), node.place)
    unset = node is None or (isinstance(node, Scalar) and node.plain and node.text in ("", "null", "~"))
    if isinstance(head, int) or not (unset or isinstance(node, MapNode)):
        kind = "list" if isinstance(head, int) else "mapping"
        raise _NoSuchPlaceError(dotted((*above, head)), f"{here} is not a {kind}", "")
    entries = dict(node.entries) if isinstance(node, MapNode) else {}
    entries[head] = _with_value(entries.get(head), rest, value, (*above, head))
    return MapNode(entries, node.place if isinstance(node, MapNode) else value.place)
