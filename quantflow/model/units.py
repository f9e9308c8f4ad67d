"""The units of a model by their names, and those that a recipe's patterns mean."""

import difflib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from quantflow.errors import RecipeError
from quantflow.model.families import Family

HEAD = "lm_head"
"""The unit outside the blocks; it stays as it is in every quantized artifact."""
FORCE_KEY = "sensitivity.force"
"""Key of the recipe for units that are quantized whatever they cost."""


def units_of(family: Family, blocks: int) -> Mapping[str, tuple[str, ...]]:
    """Units of the blocks, e.g. `model.layers.0.qkv` → full names of its linears.

    Args:
        family: The model's family.
        blocks: How many blocks it has.
    """
    return {
        f"{family.block_name(index)}.{unit}": tuple(f"{family.block_name(index)}.{name}" for name in linears)
        for index in range(blocks)
        for unit, linears in family.units.items()
    }


def kept_units(patterns: Sequence[str], family: Family, blocks: int, where: str = "keep") -> frozenset[str]:
    """The units of the blocks that a recipe's `keep` means.

    Args:
        patterns: Names of units, or patterns with `*`, `?` and `[0-9]`.
        family: The model's family.
        blocks: How many blocks it has.
        where: Key of the recipe, for messages.

    Raises:
        RecipeError: A pattern means no unit, or a layer that is a part of one, or all of them are kept.
    """
    units, kept = units_of(family, blocks), named_units(patterns, family, blocks, where)
    if units and kept >= units.keys():
        raise RecipeError(
            "it keeps every unit of the blocks, so that nothing would be quantized",
            where=where,
            hint="For the model itself ask for `format: hf`.",
        )
    return kept - {HEAD}


def named_units(patterns: Sequence[str], family: Family, blocks: int, where: str) -> frozenset[str]:
    """The units, `lm_head` among them, that names or patterns of a recipe mean.

    Args:
        patterns: Names of units, or patterns with `*`, `?` and `[0-9]`.
        family: The model's family.
        blocks: How many blocks it has.
        where: Key of the recipe, for messages.

    Raises:
        RecipeError: A pattern means no unit, or a layer that is a part of one.
    """
    units = units_of(family, blocks)
    named: set[str] = set()
    for pattern in patterns:
        found = {unit for unit in (*units, HEAD) if fnmatchcase(unit, pattern)}
        if not found:
            raise _unknown(pattern, units, where)
        named |= found
    return frozenset(named)


def require_disjoint(kept: frozenset[str], forced: frozenset[str], where: str) -> None:
    """Refuse a unit that is both to stay as it is and to be quantized.

    Raises:
        RecipeError: There is one; `where` is the key of the recipe that is named.
    """
    if both := sorted(kept & forced):
        raise RecipeError(
            f"{both[0]} is both to be kept and to be quantized",
            where=where,
            hint="Take it out of one of `keep` and `force`.",
        )


def kept_of_all(patterns: Sequence[str], family: Family, blocks: int, where: str = "keep") -> frozenset[str]:
    """The units that a recipe's `keep` means in a format in which the head is a unit like any other.

    Args:
        patterns: As for `kept_units`.
        family: The model's family.
        blocks: How many blocks it has.
        where: Key of the recipe, for messages.

    Raises:
        RecipeError: As for `kept_units`.
    """
    kept = kept_units(patterns, family, blocks, where)
    return kept | {HEAD} if any(fnmatchcase(HEAD, pattern) for pattern in patterns) else kept


def _unknown(pattern: str, units: Mapping[str, tuple[str, ...]], where: str) -> RecipeError:
    wholes = [unit for unit, linears in units.items() if any(fnmatchcase(name, pattern) for name in linears)]
    if wholes:
        return RecipeError(
            f"{pattern!r} means a layer and not a unit: runtimes fuse the layers of a unit, which stay or "
            "are quantized together",
            where=where,
            hint=f"Name the unit: {wholes[0]}.",
        )
    names = (*units, HEAD)
    near = difflib.get_close_matches(pattern, names, n=1)
    did = f"Did you mean {near[0]}? " if near else ""
    first, last = next(iter(units), HEAD), [*units, HEAD][len(units) - 1]
    return RecipeError(
        f"the model has no unit {pattern!r}",
        where=where,
        hint=f"{did}Units are {first} to {last}, and {HEAD}.",
    )
