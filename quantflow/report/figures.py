"""Figures as people read them: thousands separated, decimal bytes, a dash where there is none."""

from pydantic import JsonValue

NONE = "–"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_BYTE_UNITS = ("bytes", "kB", "MB", "GB", "TB")
# Beyond these a plain decimal is harder to read than a power of ten.
_LARGEST_PLAIN, _SMALLEST_PLAIN = 1e5, 1e-4


def count(number: int | None) -> str:
    """A number of things: `12,345`."""
    return NONE if number is None else f"{number:,}"


def size(number: int | None) -> str:
    """Bytes in the decimal unit that suits: `91.7 MB`."""
    if number is None:
        return NONE
    value, unit = float(number), 0
    while value >= 1000 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{number} bytes" if unit == 0 else f"{value:.3g} {_BYTE_UNITS[unit]}"


def decimal(value: float | None, digits: int = 4) -> str:
    """A measured value with `digits` significant digits: `0.05312`, `1.2 × 10⁻⁹`."""
    if value is None:
        return NONE
    if value == 0 or _SMALLEST_PLAIN <= abs(value) < _LARGEST_PLAIN:
        text = f"{value:#,.{digits}g}".rstrip(".")
        return text.replace("-", "−")
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}".replace("-", "−", 1)


def percent(fraction: float | None) -> str:
    """A share: 0.912 → `91.2 %`."""
    return NONE if fraction is None else f"{decimal(100 * fraction, 3)} %"


def signed_percent(fraction: float | None) -> str:
    """A relative change: 0.0312 → `+3.12 %`."""
    if fraction is None:
        return NONE
    return f"{'+' if fraction > 0 else ''}{decimal(100 * fraction, 3)} %"


def flatten(value: JsonValue, name: str = "") -> list[tuple[str, str]]:
    """Nested JSON as rows of dotted name and text, names in the order given."""
    if isinstance(value, dict) and value:
        return [row for key, part in value.items() for row in flatten(part, f"{name}.{key}" if name else key)]
    if isinstance(value, list) and any(isinstance(part, dict | list) for part in value):
        return [row for index, part in enumerate(value) for row in flatten(part, f"{name}[{index}]")]
    if isinstance(value, list):
        return [(name, ", ".join(_text(part) for part in value) or NONE)]
    return [(name, _text(value))]


def _text(value: JsonValue) -> str:
    if value is None or value == {}:
        return NONE
    return str(value).lower() if isinstance(value, bool) else str(value)
