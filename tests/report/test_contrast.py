"""Colours of the page have the contrast that WCAG 2.2 asks for, in light and in dark."""

import re
from pathlib import Path

import pytest

import quantflow.report

CSS = "".join(
    path.read_text() for path in sorted((Path(quantflow.report.__file__).parent / "templates").glob("*.css"))
)
TEXT, GRAPHIC = 4.5, 3.0
VERDICTS = ("pass", "fail", "inconclusive", "error")
SERIES = tuple(f"series-{number}" for number in range(1, 7))


def themes() -> dict[str, dict[str, str]]:
    """Light and dark: variable → colour."""
    blocks = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks)
    return {"light": light, "dark": light | dark}


def luminance(colour: str) -> float:
    """Relative luminance of sRGB (WCAG 2.2, definitions)."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


PAIRS = [
    *((text, ground, TEXT) for text in ("text", "muted", "accent") for ground in ("page", "card", "soft")),
    *((verdict, f"{verdict}-soft", TEXT) for verdict in VERDICTS),
    *(("text", f"{verdict}-soft", TEXT) for verdict in VERDICTS),
    *((verdict, "card", GRAPHIC) for verdict in VERDICTS),
    *((verdict, "allowed", GRAPHIC) for verdict in VERDICTS),
    ("text", "marked", TEXT),
    *((series, "card", GRAPHIC) for series in SERIES),
]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("front", "ground", "least"), PAIRS, ids=[f"{a} on {b}" for a, b, _ in PAIRS])
def test_contrast(theme: str, front: str, ground: str, least: float) -> None:
    colours = themes()[theme]
    assert contrast(colours[front], colours[ground]) >= least


def test_black_on_white_is_the_largest_contrast() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_no_rule_has_a_colour_of_its_own() -> None:
    # A colour outside the two lists would be the same in light and dark, and no pair above.
    rules = re.sub(r":root \{.*?\}", "", CSS, flags=re.DOTALL)
    assert re.findall(r"#[0-9a-f]{3,6}\b", rules) == ["#fff"]  # paper
