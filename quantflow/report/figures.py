"""Figures as people read them: thousands separated, decimal bytes, a dash where there is none."""

from dataclasses import dataclass

from pydantic import JsonValue

NONE = "–"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_BYTE_UNITS = ("bytes", "kB", "MB", "GB", "TB")
# Beyond these a plain decimal is harder to read than a power of ten.
_LARGEST_PLAIN, _SMALLEST_PLAIN = 1e5, 1e-3


def count(number: int | None) -> str:
    """A number of things: `12,345`."""
    return NONE if number is None else f"{number:,}"


def size(number: int | None) -> str:
    """Bytes in the decimal unit that suits: `91.7 MB`."""
    if number is None:
        return NONE
    value, unit = float(number), 0
    while abs(value) >= 1000 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{number} bytes" if unit == 0 else f"{value:.3g} {_BYTE_UNITS[unit]}"


def byte_scale(largest: int) -> tuple[int, str]:
    """Bytes of the decimal unit that suits the largest of several sizes, and its name: `(10**6, "MB")`."""
    power = min(max(len(str(largest)) - 1, 0) // 3, len(_BYTE_UNITS) - 1)
    return 1000**power, _BYTE_UNITS[power]


def perplexity(value: float | None) -> str:
    """A perplexity: `11.482`."""
    return _fixed(value, 3)


def nats(value: float | None) -> str:
    """A KL divergence in nats per token: `0.0531`, `1.24 × 10⁻⁹`."""
    return _fixed(value, 4)


def seconds(value: float | None) -> str:
    """A short time: `1.24 s`, `38.2 ms`."""
    if value is None:
        return NONE
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"


def percent(fraction: float | None, decimals: int = 1) -> str:
    """A share: 0.912 → `91.2 %`."""
    return NONE if fraction is None else f"{100 * fraction:.{decimals}f} %".replace("-", "−")


def signed_percent(fraction: float | None) -> str:
    """A relative change: 0.0312 → `+3.12 %`."""
    if fraction is None:
        return NONE
    return f"{'+' if fraction > 0 else ''}{_fixed(100 * fraction, 2, smallest=0.01)} %"


def margin(value: float, *, relative: bool) -> str:
    """A margin as a person set it: 0.15 → `+15 %` or `0.15`."""
    return f"{100 * value:+.6g} %" if relative else f"{value:.6g}"


def _fixed(value: float | None, decimals: int, smallest: float = _SMALLEST_PLAIN) -> str:
    """Plain decimals, so that a column lines up; a power of ten where that would show nothing or too much."""
    if value is None:
        return NONE
    if value == 0 or smallest <= abs(value) < _LARGEST_PLAIN:
        text = f"{value:,.{decimals}f}"
    else:
        mantissa, exponent = f"{value:.2e}".split("e")
        text = f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
    return text.replace("-", "−")


def flatten(value: JsonValue, name: str = "") -> list[tuple[str, str]]:
    """Nested JSON as rows of dotted name and text, names in the order given; none of an empty object."""
    if value == {} and not name:
        return []
    if isinstance(value, dict) and value:
        return [row for key, part in value.items() for row in flatten(part, f"{name}.{key}" if name else key)]
    if isinstance(value, list) and any(isinstance(part, dict | list) for part in value):
        return [row for index, part in enumerate(value) for row in flatten(part, f"{name}[{index}]")]
    if isinstance(value, list):
        return [(name, ", ".join(_text(part) for part in value) or NONE)]
    return [(name, _text(value))]


@dataclass(frozen=True)
class Table:
    """Rows of one kind.

    Attributes:
        name: What the rows are.
        columns: Names of the columns.
        rows: Each row's texts, one for each column.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def as_table(name: str, value: JsonValue) -> Table | None:
    """A list of flat objects with the same keys as a table; None for anything else."""
    if not isinstance(value, list):
        return None
    records = [record for record in value if isinstance(record, dict)]
    if (
        not records
        or len(records) < len(value)
        or any(record.keys() != records[0].keys() for record in records)
    ):
        return None
    if any(isinstance(cell, dict | list) for record in records for cell in record.values()):
        return None
    rows = tuple(tuple(_text(cell) for cell in record.values()) for record in records)
    return Table(name, tuple(records[0]), rows)


def _text(value: JsonValue) -> str:
    if value is None or value == {}:
        return NONE
    return str(value).lower() if isinstance(value, bool) else str(value)
