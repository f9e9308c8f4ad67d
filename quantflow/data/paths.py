"""Paths into rows and objects: `ticket.body`, `turns[].text`, `services[0]`."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

_STEP = re.compile(r"(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]|(?P<each>\[\])")


class MissingError(Exception):
    """The path leads nowhere; the argument says which part of it is missing."""


class _Each:
    """A step to every item of a list."""


EACH = _Each()
Step = str | int | _Each


@lru_cache(maxsize=64)
def steps_of(path: str) -> tuple[Step, ...]:
    """Take a path apart."""
    steps: list[Step] = []
    for match in _STEP.finditer(path):
        if match["each"]:
            steps.append(EACH)
        elif match["index"]:
            steps.append(int(match["index"]))
        else:
            steps.append(match["name"])
    return tuple(steps)


def first_name(path: str) -> str:
    """The field of a row that a path begins at."""
    first = next(iter(steps_of(path)), "")
    return first if isinstance(first, str) else ""


def look_up(row: Mapping[str, Any], path: str) -> Any:
    """The value at a path; with `[]` in it, the list of all values there.

    A field whose name is the whole path, dots included, comes before what the path would lead to.

    Raises:
        MissingError: A field on the way is not there.
    """
    if path in row:
        return row[path]
    steps = steps_of(path)
    found = list(_walk(row, steps, ""))
    return found if EACH in steps else found[0]


def _walk(value: Any, steps: tuple[Step, ...], so_far: str) -> Iterator[Any]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if isinstance(step, str):
        here = f"{so_far}.{step}" if so_far else step
        if not isinstance(value, Mapping) or step not in value:
            raise MissingError(here)
        yield from _walk(value[step], rest, here)
    elif isinstance(step, int):
        if not isinstance(value, list) or step >= len(value):
            raise MissingError(f"{so_far}[{step}]")
        yield from _walk(value[step], rest, f"{so_far}[{step}]")
    else:
        if not isinstance(value, list):
            raise MissingError(f"{so_far}[]")
        for index, item in enumerate(value):
            yield from _walk(item, rest, f"{so_far}[{index}]")
