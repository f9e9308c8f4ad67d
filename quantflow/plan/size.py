"""Sizes in bytes as people write and read them."""

import re

from quantflow.errors import RecipeError

_UNITS: dict[str, int] = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for suffix, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate("KMGT", start=1)
}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def readable(size: float) -> str:
    """Bytes in decimal units: `12 kB`, `1.4 MB`, `26 GB`."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            value = size / scale
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{size:.0f} bytes"


def parse_size(text: str, option: str) -> int:
    """Bytes of `20GB`, `500 MB`, `1.5TiB` or a plain number.

    Args:
        text: What the user wrote.
        option: Where, for the message.

    Raises:
        RecipeError: It is none of these.
    """
    match = _FORM.fullmatch(text)
    units = {unit.lower(): scale for unit, scale in _UNITS.items()}
    if match is None or match[2].lower() not in units:
        raise RecipeError(
            f"{text!r} is no size", where=option, hint="Write for example 20GB, 500MB or 1.5TiB."
        )
    return round(float(match[1]) * units[match[2].lower()])
