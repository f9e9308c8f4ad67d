"""The schema as a reader of error messages needs it: which keys there are where, and what they mean."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from quantflow.recipe.nodes import Loc
from quantflow.recipe.schema import Recipe
from quantflow.recipe.section import Section

TAG = "format"
"""The key that says which of several sections an entry of a list is."""


@dataclass(frozen=True)
class Key:
    """A place in the recipe, seen through the schema.

    Attributes:
        loc: Where it is in the document.
        holders: The sections that the last key may be in: one, or those that `TAG` tells apart.
        siblings: Sections that the entry could have been instead, had it another `TAG`.
        fields: What each holder says of the last key; none where it is not in the schema.
    """

    loc: Loc
    holders: tuple[type[Section], ...]
    siblings: tuple[type[Section], ...]
    fields: tuple[FieldInfo, ...]

    @property
    def description(self) -> str:
        """What the key means, in the words of the schema; empty where it is not in it."""
        return " ".join(dict.fromkeys(field.description or "" for field in self.fields))

    @property
    def sections(self) -> tuple[type[Section], ...]:
        """The sections that the key's value may be."""
        return tuple(section for field in self.fields for section in sections_of(field.annotation))

    @property
    def is_required(self) -> bool:
        """Whether the key has no default."""
        return any(field.is_required() for field in self.fields)

    @property
    def literals(self) -> tuple[str, ...]:
        """The words or numbers that are allowed, where they can be listed."""
        return tuple(str(value) for field in self.fields for value in get_args(field.annotation))


def key_at(loc: Loc) -> Key:
    """Look a place up.

    Args:
        loc: As pydantic gives it: within an entry that `TAG` decides on, the tag stands in it like a key.
    """
    place: list[str | int] = []
    holders: tuple[type[Section], ...] = ()
    siblings: tuple[type[Section], ...] = ()
    inside: tuple[type[Section], ...] = (Recipe,)
    fields: tuple[FieldInfo, ...] = ()
    for part in loc:
        chosen = tuple(section for section in inside if len(inside) > 1 and tag_of(section) == part)
        if isinstance(part, int):
            place.append(part)
        elif chosen:
            siblings, inside = tuple(s for s in inside if s not in chosen), chosen
        else:
            place.append(part)
            holders = inside
            fields = tuple(fields_of(s)[part] for s in holders if part in fields_of(s))
            inside = tuple(section for field in fields for section in sections_of(field.annotation))
    return Key(tuple(place), holders, siblings, fields)


def tag_of(section: type[Section]) -> str | None:
    """The `TAG` of a section, if it has one."""
    field = section.model_fields.get(TAG)
    return str(get_args(field.annotation)[0]) if field else None


def fields_of(section: type[Section]) -> dict[str, FieldInfo]:
    """The keys of a section as they are written, which is not always how Python can call them."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def sections_of(annotation: Any) -> tuple[type[Section], ...]:
    """The sections that a type allows, itself or inside a list."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return (annotation,)
    return tuple(section for part in get_args(annotation) for section in sections_of(part))


def all_keys(section: type[Section] = Recipe, above: str = "") -> Iterator[str]:
    """Every key of the recipe with its path, e.g. `artifacts[].bits`; those of several sections once each."""
    for name, field in fields_of(section).items():
        path = f"{above}{name}"
        yield path
        for inner in sections_of(field.annotation):
            yield from all_keys(inner, f"{path}{'[]' if get_origin(field.annotation) is tuple else ''}.")
