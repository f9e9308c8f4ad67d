"""Validation of a recipe's plain data, in the words of a recipe rather than of the library that checks it."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from quantflow.recipe.artifacts import repeated
from quantflow.recipe.keys import TAG, Key, all_keys, fields_of, key_at, tag_of
from quantflow.recipe.nodes import ListNode, Loc, MapNode, Node, Place, Problem, Scalar, dotted, walk
from quantflow.recipe.schema import Recipe
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
    "bool_type": "true or false",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
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
    node = nodes.get(key_at(detail["loc"]).loc)
    filled = bool(node.items) if isinstance(node, ListNode) else isinstance(node, Scalar)
    return detail["type"] == "too_short" and filled


def _problem(detail: ErrorDetails, nodes: Mapping[Loc, Node]) -> Problem:
    kind, context = detail["type"], detail.get("ctx", {})
    # Which section an entry is meant to be is decided by one key: that key is at fault.
    key = key_at((*detail["loc"], TAG) if kind.startswith("union_tag_") else detail["loc"])
    loc, node = key.loc, nodes.get(key.loc)
    text = node.text if isinstance(node, Scalar) else ""
    written = f"`{text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + '…'}`" if text else "nothing"
    got = written if node is None or isinstance(node, Scalar) else _kind_of(node)
    if kind == "extra_forbidden":
        message, hint = "there is no such key", _key_hint(key)
    elif kind in ("missing", "union_tag_not_found"):
        message, hint = "this key is missing", key.description
    elif kind in ("literal_error", "union_tag_invalid"):
        message = f"{got} is not allowed"
        hint = f"{_nearest(text, key.literals)}Allowed: {_listed(key.literals)}. {key.description}"
    elif kind == "repeated_name":
        loc = (*loc, context["index"], "name")
        message, hint = detail["msg"], "Each artifact has a folder of its own: give each its own name."
    elif kind == "idle_key":
        loc = (*loc, context["key"])
        message, hint = detail["msg"], context.get("hint", "Remove it, or set method to gptq.")
    elif kind == "unfit_codes":
        loc = (*loc, context["index"], "codes_from")
        message, hint = detail["msg"], "Name an awq or gptq artifact of 4 bits in groups."
    elif kind == "string_pattern_mismatch":
        message = f"{written} cannot be the name of a folder everywhere"
        hint = "Use a-z, 0-9, `.`, `_` and `-`, and begin with a letter or digit."
    elif kind == "string_too_long":
        message, hint = f"longer than {context['max_length']} characters", ""
    elif kind in ("string_too_short", "too_short"):
        message, hint = "must not be empty", key.description
    elif kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        message, hint = f"{written} is out of range: {words} {context[bound]} is allowed", key.description
    elif kind in _WANTED:
        message, hint = f"has to be {_WANTED[kind]}, this is {got}", _type_hint(kind, key, node)
    else:
        message, hint = detail["msg"], key.description
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


def _type_hint(kind: str, key: Key, node: Node | None) -> str:
    if kind == "string_type":
        return "Put it in quotes." if isinstance(node, Scalar) and node.text else key.description
    if kind in ("model_type", "model_attributes_type"):
        if isinstance(node, Scalar) and not node.text and not key.is_required:
            return "Remove the key to use its defaults."
        return f"Keys: {_listed(_keys_of(key.sections))}." if key.sections else ""
    if kind == "tuple_type":
        return "Write [first, second], or one entry a line, each after a `- `."
    if isinstance(node, Scalar) and not node.plain:
        return "Write it without quotes."
    if isinstance(node, Scalar) and node.text.replace("_", "").isdecimal():
        return f"Write {node.text.replace('_', '')}, without underscores."
    return key.description


def _kind_of(node: Node) -> str:
    return "a mapping" if isinstance(node, MapNode) else "a list"


def _key_hint(key: Key) -> str:
    if not key.holders:
        return ""
    name, allowed = str(key.loc[-1]), _keys_of(key.holders)
    others = [str(tag_of(section)) for section in key.siblings if name in fields_of(section)]
    near = f"It goes with {TAG} {_listed(others)}. " if others else _nearest(name, allowed)
    elsewhere = [path for path in dict.fromkeys(all_keys()) if path.rpartition(".")[2] == name]
    if not near and elsewhere:
        near = f"Did you mean {_listed(elsewhere)}? "
    return f"{near}Allowed here: {_listed(allowed)}."


def _keys_of(sections: Iterable[type[Section]]) -> list[str]:
    return sorted({name for section in sections for name in fields_of(section)})


def _nearest(word: str, allowed: Sequence[str]) -> str:
    folded = word.lower().replace("-", "_").replace(" ", "_")
    begun = [name for name in allowed if len(folded) >= SHORTEST_PREFIX and name.startswith(folded)]
    matches = begun or difflib.get_close_matches(folded, allowed, n=1, cutoff=SIMILAR)
    return f"Did you mean `{matches[0]}`? " if matches else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
