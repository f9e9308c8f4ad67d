"""Figures as people read them."""

import pytest
from pydantic import JsonValue

from quantflow.report import figures


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0.0000"),
        (0.0531, "0.0531"),
        (1.2e-9, "1.20 × 10⁻⁹"),
        (-2.5e-7, "−2.50 × 10⁻⁷"),
        (3e8, "3.00 × 10⁸"),
    ],
)
def test_nats(value: float | None, text: str) -> None:
    assert figures.nats(value) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (None, "–"),
        (0.0312, "+3.12 %"),
        (-0.01, "−1.00 %"),
        (0.0, "0.00 %"),
        (1e-6, "+1.00 × 10⁻⁴ %"),
        (2e4, "+2.00 × 10⁶ %"),
    ],
)
def test_a_relative_change_always_has_its_sign(fraction: float | None, text: str) -> None:
    assert figures.signed_percent(fraction) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "–"),
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (91_700_000, "91.7 MB"),
        (26_000_000_000, "26 GB"),
    ],
)
def test_bytes_have_decimal_units(number: int | None, text: str) -> None:
    assert figures.size(number) == text


def test_a_margin_has_the_digits_it_was_given_with() -> None:
    assert figures.margin(0.15, relative=True) == "+15 %"
    assert figures.margin(0.005, relative=True) == "+0.5 %"
    assert figures.margin(0.05, relative=False) == "0.05"


def test_nested_values_become_dotted_rows() -> None:
    value: JsonValue = {"a": {"b": 1, "c": [1, 2]}, "d": [{"e": None}], "f": [], "g": {}, "h": True}
    assert figures.flatten(value) == [
        ("a.b", "1"),
        ("a.c", "1, 2"),
        ("d[0].e", "–"),
        ("f", "–"),
        ("g", "–"),
        ("h", "true"),
    ]


def test_records_with_the_same_keys_are_a_table_and_others_are_not() -> None:
    table = figures.as_table("stages", [{"name": "a", "seconds": 1.5}, {"name": "b", "seconds": None}])
    assert table == figures.Table("stages", ("name", "seconds"), (("a", "1.5"), ("b", "–")))
    assert figures.as_table("x", [{"a": 1}, {"b": 1}]) is None
    assert figures.as_table("x", [{"a": [1]}]) is None
    assert figures.as_table("x", [{"a": 1}, 2]) is None
    assert figures.as_table("x", []) is None
    assert figures.as_table("x", {"a": 1}) is None


def test_an_empty_object_has_no_rows() -> None:
    assert figures.flatten({}) == []
