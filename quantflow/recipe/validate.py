"""Validation of a recipe's plain data, in the words of a recipe rather than of the library that checks it."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from quantflow.recipe.nodes import ListNode, Loc, MapNode, Node, Place, Problem, Scalar, dotted, walk
from quantflow.recipe.schema import Recipe, repeated
from quantflow.recipe.section import Section

# Ratio of difflib from which a word is taken for a misspelling: `torhc` is 0.8 like `torch`, while `gpu`,
# which means `cuda`, is 0.67 like `cpu`.
SIMILAR = 0.7
SHORTEST_PREFIX = 3  # letters from which `calib` is taken for `calibration`
LONGEST_QUOTE = 80  # characters of a value that a message repeats

_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "model_type": "a mapping of keys",
    "tuple_type": "a list",
}
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def validate(root: MapNode, data: Mapping[str, object]) -> Recipe | list[Problem]:
    """Check plain data against the schema.

    Args:
        root: The nodes the data came from, for lines and spellings.
        data: The data.

    Returns:
        The recipe, its paths still as written; or every mistake found.
    """
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
    nodes = dict(walk(root))
    problems = [_problem(detail, nodes) for detail in details if not _is_echo(detail, nodes)]
    # pydantic looks at names across artifacts only when each artifact is sound by itself.
    if not any(detail["type"] == "repeated_name" for detail in details):
        problems.extend(_repeated_names(data, nodes))
    return problems


def _is_echo(detail: ErrorDetails, nodes: Mapping[Loc, Node]) -> bool:
    """Whether a list is called too short only because its entries, reported themselves, were not counted."""
    node = nodes.get(detail["loc"])
    filled = bool(node.items) if isinstance(node, ListNode) else isinstance(node, Scalar)
    return detail["type"] == "too_short" and filled


def _problem(detail: ErrorDetails, nodes: Mapping[Loc, Node]) -> Problem:
    loc, kind, context = detail["loc"], detail["type"], detail.get("ctx", {})
    node = nodes.get(loc)
    text = node.text if isinstance(node, Scalar) else ""
    written = f"`{text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + '…'}`" if text else "nothing"
    if kind == "extra_forbidden":
        message, hint = "there is no such key", _key_hint(loc)
    elif kind == "missing":
        message, hint = "this key is missing", _description(loc)
    elif kind == "literal_error":
        allowed = [str(value) for value in _literals(_field(loc))]
        message = f"{written} is not allowed"
        hint = f"{_nearest(text, allowed)}Allowed: {_listed(allowed)}. {_description(loc)}"
    elif kind == "repeated_name":
        loc = (*loc, context["index"], "name")
        message, hint = detail["msg"], "Each artifact has a folder of its own: give each its own name."
    elif kind == "string_pattern_mismatch":
        message = f"{written} cannot be the name of a folder everywhere"
        hint = "Use a-z, 0-9, `.`, `_` and `-`, and begin with a letter or digit."
    elif kind == "string_too_long":
        message, hint = f"longer than {context['max_length']} characters", ""
    elif kind in ("string_too_short", "too_short"):
        message, hint = "must not be empty", _description(loc)
    elif kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        message, hint = f"{written} is out of range: {words} {context[bound]} is allowed", _description(loc)
    elif kind in _WANTED:
        got = written if node is None or isinstance(node, Scalar) else _kind_of(node)
        message, hint = f"has to be {_WANTED[kind]}, this is {got}", _type_hint(kind, loc, node)
    else:
        message, hint = detail["msg"], _description(loc)
    return Problem(place_of(loc, nodes), dotted(loc), message, hint)


def place_of(loc: Loc, nodes: Mapping[Loc, Node]) -> Place:
    """Where `loc` was written, or the nearest mapping or list around it if it was not."""
    while loc not in nodes:
        loc = loc[:-1]
    return nodes[loc].place


def _repeated_names(data: Mapping[str, object], nodes: Mapping[Loc, Node]) -> Iterator[Problem]:
    artifacts = data.get("artifacts")
    entries = artifacts if isinstance(artifacts, list) else []
    named = [(i, e["name"]) for i, e in enumerate(entries) if isinstance(e, dict) and "name" in e]
    found = repeated([name for _, name in named])
    if found is not None:
        loc = ("artifacts", named[found[0]][0], "name")
        message = f"the name is that of artifacts[{named[found[1]][0]}], too"
        yield Problem(place_of(loc, nodes), dotted(loc), message, "Give each artifact its own name.")


def _type_hint(kind: str, loc: Loc, node: Node | None) -> str:
    field = _field(loc)
    if kind == "string_type":
        return "Put it in quotes." if isinstance(node, Scalar) and node.text else _description(loc)
    if kind == "model_type":
        section = _section_of(field.annotation) if field else None
        if isinstance(node, Scalar) and not node.text and field and not field.is_required():
            return "Remove the key to use its defaults."
        return f"Keys: {_listed(sorted(section.model_fields))}." if section else ""
    if kind == "tuple_type":
        return "Write [first, second], or one entry a line, each after a `- `."
    if isinstance(node, Scalar) and not node.plain:
        return "Write it without quotes."
    if isinstance(node, Scalar) and node.text.replace("_", "").isdecimal():
        return f"Write {node.text.replace('_', '')}, without underscores."
    return _description(loc)


def _kind_of(node: Node) -> str:
    return "a mapping" if isinstance(node, MapNode) else "a list"


def _key_hint(loc: Loc) -> str:
    section = _section_at(loc[:-1])
    key = str(loc[-1])
    if section is None:
        return ""
    allowed = sorted(section.model_fields)
    near = _nearest(key, allowed)
    elsewhere = [path for path in _all_keys(Recipe, "") if path.rpartition(".")[2] == key]
    if not near and elsewhere:
        near = f"Did you mean {_listed(elsewhere)}? "
    return f"{near}Allowed here: {_listed(allowed)}."


def _nearest(word: str, allowed: list[str]) -> str:
    folded = word.lower().replace("-", "_").replace(" ", "_")
    begun = [name for name in allowed if len(folded) >= SHORTEST_PREFIX and name.startswith(folded)]
    matches = begun or difflib.get_close_matches(folded, allowed, n=1, cutoff=SIMILAR)
    return f"Did you mean `{matches[0]}`? " if matches else ""


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _all_keys(section: type[Section], above: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        path = f"{above}{name}"
        yield path
        inner = _section_of(field.annotation)
        if inner is not None:
            yield from _all_keys(inner, f"{path}{'[]' if get_origin(field.annotation) is tuple else ''}.")


def _description(loc: Loc) -> str:
    field = _field(loc)
    return (field.description or "") if field else ""


def _field(loc: Loc) -> FieldInfo | None:
    while loc and isinstance(loc[-1], int):
        loc = loc[:-1]
    section = _section_at(loc[:-1]) if loc else None
    return section.model_fields.get(str(loc[-1])) if section else None


def _section_at(loc: Loc) -> type[Section] | None:
    section: type[Section] | None = Recipe
    for part in loc:
        if isinstance(part, int) or section is None:
            continue
        field = section.model_fields.get(part)
        section = _section_of(field.annotation) if field else None
    return section


def _section_of(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((s for arg in get_args(annotation) if (s := _section_of(arg)) is not None), None)


def _literals(field: FieldInfo | None) -> tuple[object, ...]:
    return get_args(field.annotation) if field else ()
