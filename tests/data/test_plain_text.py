"""A text file is one document, its paragraphs or its lines."""

from pathlib import Path

import pytest

from quantflow.data.record import Mistake
from tests.data.reading import line_of, read, records, texts

TEXT = "First line.\r\nSecond line.\r\n\r\n\r\n  Indented paragraph.\n\t\nLast one"


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ("file", ["First line.\nSecond line.\n\n\n  Indented paragraph.\n\t\nLast one"]),
        ("paragraph", ["First line.\nSecond line.", "  Indented paragraph.", "Last one"]),
        ("line", ["First line.", "Second line.", "  Indented paragraph.", "Last one"]),
    ],
)
def test_a_text_file_is_one_document_or_its_paragraphs_or_its_lines(
    tmp_path: Path, documents: str, expected: list[str]
) -> None:
    path = tmp_path / "contracts" / "a.txt"
    path.parent.mkdir()
    path.write_bytes(TEXT.encode())
    found = records(read(path, documents=documents))
    assert [r.content for r in found] == expected
    assert found[0].slice == ("contracts" if documents == "file" else "a")
    assert found[0].id == ("a.txt" if documents == "file" else None)
    if documents != "file":
        assert [line_of(r) for r in found][-2:] == [5, 7]


def test_lines_may_end_in_carriage_returns_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\rtwo\r\rthree\r")
    assert texts(path, documents="paragraph") == ["one\ntwo", "three"]


def test_a_text_file_that_is_blank_holds_no_document(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\n \r\n")
    for documents in ("file", "paragraph", "line"):
        assert read(path, documents=documents) == []


def test_a_text_file_too_long_for_a_document_says_what_to_set(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a line of text\n" * 700_000)
    (outcome,) = read(path)
    assert isinstance(outcome, Mistake) and "set data.documents to paragraph or line" in outcome.message
    (outcome,) = read(path, documents="paragraph")
    assert isinstance(outcome, Mistake) and "set data.documents to line" in outcome.message
    assert len(records(read(path, documents="line"))) == 700_000
