"""JSON files are read element by element, every mistake at its line."""

import json
from pathlib import Path

import pytest

from quantflow.data.record import Mistake
from quantflow.errors import DataError
from tests.data.reading import line_of, read, records, texts

LINES = [{"text": f"document number {i}", "slice": "ab"[i % 2], "id": f"d{i}"} for i in range(200)]
JSONL = "".join(json.dumps(line) + "\n" for line in LINES).encode()


def test_a_json_file_is_a_list_of_objects(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(LINES, indent=2))
    found = records(read(path))
    assert [r.content for r in found] == [line["text"] for line in LINES]
    lines = path.read_text().splitlines()
    assert all(lines[line_of(r) - 1].strip() == "{" for r in found)


def test_a_json_file_is_objects_under_names_that_are_their_ids(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"x": {"text": "one"}, "y": {"text": "two", "id": "own"}}, indent=1))
    assert [(r.id, r.content) for r in records(read(path))] == [("x", "one"), ("own", "two")]


def test_a_json_file_may_be_jsonl_by_another_name(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(JSONL + b"nonsense\n")
    *good, bad = read(path)
    assert len(good) == 200
    assert isinstance(bad, Mistake) and bad.where == f"{path}:201"


@pytest.mark.parametrize("indent", [None, 1])
def test_a_json_file_of_any_length_and_layout_is_read_element_by_element(
    tmp_path: Path, indent: int | None
) -> None:
    path = tmp_path / "a.json"
    elements = [{"text": f"{i} " + "x" * (i % 7 * 40_000), "n": [i, 1.5, {"a": "}]"}]} for i in range(60)]
    path.write_text(json.dumps(elements, indent=indent))
    assert texts(path) == [element["text"] for element in elements]


@pytest.mark.parametrize(
    ("content", "message", "line"),
    [
        ('[\n{"text": "a"},\n{"text": "b"\n]', "not valid JSON: Expecting ',' delimiter", 4),
        ('[{"text": "a"}\n{"text": "b"}]', "`,` or `]` is wanted after an element", 2),
        ('{"a": {"text": "a"},\n"b" {"text": "b"}}', "a name in quotes and `:` are wanted", 2),
        ('[{"text": "a"}]\nmore', "there is more after the end", 2),
        ('"text"', "a list or an object is wanted", 1),
        ("[" * 100_000, "not valid JSON", 1),
        ('[{"text": "never closed\n', "not valid JSON", 1),
    ],
)
def test_json_that_is_none_is_an_error_at_its_line(
    tmp_path: Path, content: str, message: str, line: int
) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        read(path)
    assert message in caught.value.message
    assert caught.value.where == f"{path}:{line}"


@pytest.mark.parametrize("content", ["", " \n", "[]", "{}", "[ ]\n"])
def test_a_json_file_may_hold_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    assert read(path) == []
