"""CSV and Parquet: a document a row, every mistake at its line or row."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quantflow.data.params import FieldParams
from quantflow.data.record import Mistake, Record
from quantflow.errors import DataError
from tests.data.reading import line_of, read, records, texts

CSV = 'id,slice,text\n1,a,"one, two"\n2,b,"over\ntwo ""lines"""\n3,,three\n'


def test_a_csv_row_is_a_document_and_a_quoted_cell_may_go_over_lines(tmp_path: Path) -> None:
    path = tmp_path / "tickets.csv"
    path.write_bytes(b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").encode())
    found = records(read(path))
    assert [r.content for r in found] == ["one, two", 'over\r\ntwo "lines"', "three"]
    assert [(r.id, r.slice, line_of(r)) for r in found] == [("1", "a", 2), ("2", "b", 3), ("3", "tickets", 5)]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_the_delimiter_is_told_from_the_header(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"id{delimiter}text\n1{delimiter}one, two\n")
    assert texts(path) == ["one, two"]


def test_a_header_that_several_delimiters_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text;x,text\na;b,c\n")
    fields = FieldParams(text=("text",), messages="")
    with pytest.raises(DataError, match="several delimiters"):
        read(path, fields=fields)
    assert texts(path, fields=fields, delimiter=";") == ["a"]


@pytest.mark.parametrize(
    ("content", "message", "line"),
    [
        ("text,x\na,b\nonly one\n", "has 1 cells where the header has 2", 3),
        ("text\na\n\n  \n", "`text` is empty", 4),
        ('text\n"a\nb"c\nd\n', "not valid CSV", 2),
        ('text\na\n"never closed\n\n\n', "a quote is opened in this row and never closed", 3),
        ("text,slice\na, \n", "`slice` has to be a string that is not empty", 2),
    ],
)
def test_a_row_that_cannot_be_used_is_a_mistake_at_the_line_it_begins_at(
    tmp_path: Path, content: str, message: str, line: int
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    (wrong,) = [outcome for outcome in read(path) if isinstance(outcome, Mistake)]
    assert message in wrong.message
    assert line_of(wrong) == line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "there is no column `text` or `messages`; the columns are `a`, `b`"),
        ("text,text\n1,2\n", "the column `text` is there twice"),
    ],
)
def test_a_header_without_the_documents_is_an_error(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        read(path)
    assert message in caught.value.message and caught.value.where == f"{path}:1"


def test_a_quote_that_swallows_the_file_is_an_error_at_its_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text\na\n"b\n' + "word word word\n" * 700_000)
    with pytest.raises(DataError, match="probably never closed") as caught:
        read(path)
    assert caught.value.where == f"{path}:3"


def test_a_csv_row_with_a_byte_that_is_no_text_is_a_mistake_and_the_next_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("text\ncafé\n".encode() + b'"over\ntwo \xff lines"\n' + b"next\n")
    first, wrong, last = read(path)
    assert isinstance(first, Record) and isinstance(last, Record)
    assert isinstance(wrong, Mistake) and wrong.undecodable and line_of(wrong) == 4


def test_an_empty_csv_file_holds_no_document(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"")
    assert read(path) == []


def parquet(path: Path, columns: dict[str, object], **options: object) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


def test_a_parquet_row_is_a_document(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "tickets.parquet",
        {"text": ["one", "two", None], "slice": ["a", None, "c"], "id": [1, 2, 3], "score": [0.5] * 3},
        row_group_size=2,
    )
    first, second, third = read(path)
    assert isinstance(first, Record) and (first.content, first.slice, first.id) == ("one", "a", "1")
    assert isinstance(second, Record) and second.slice == "tickets"
    assert isinstance(third, Mistake) and third.where == f"{path}, row 3"
    assert third.message == "`text` has to be a string, this is null"


def test_messages_of_a_parquet_file_are_lists_or_json(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    for name, column in (("lists", [messages]), ("json", [json.dumps(messages)])):
        assert texts(parquet(tmp_path / f"{name}.parquet", {"messages": column})) == [messages]


def test_only_the_columns_of_the_mapping_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet(tmp_path / "a.parquet", {"body": ["one"], "image": [b"x" * 1000], "text": ["no"]})
    asked: list[list[str]] = []
    whole = pq.ParquetFile.iter_batches

    def spy(self: pq.ParquetFile, *args: object, columns: list[str], **rest: object) -> object:
        asked.append(columns)
        return whole(self, *args, columns=columns, **rest)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spy)
    assert texts(path, fields=FieldParams(text=("body",), messages="")) == ["one"]
    assert asked == [["body"]]


@pytest.mark.parametrize("content", [b"PAR1 is not enough", b"", b"text\none\n"])
def test_a_parquet_file_that_is_none_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(DataError, match="Parquet file cannot be read") as caught:
        read(path)
    assert caught.value.where == str(path)


def test_a_parquet_file_that_is_cut_or_damaged_is_an_error(tmp_path: Path) -> None:
    whole = parquet(tmp_path / "a.parquet", {"text": [f"{i * 7919:x}" * 9 for i in range(9000)]}).read_bytes()
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(whole[:-100])
    with pytest.raises(DataError, match="cannot be read"):
        read(cut)
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(whole[:5000] + bytes(2000) + whole[7000:])
    with pytest.raises(DataError, match=r"cannot be read|damaged"):
        read(damaged)


def test_a_parquet_file_without_the_documents_names_its_columns(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the columns are `body`"):
        read(parquet(tmp_path / "a.parquet", {"body": ["one"]}))


def test_text_in_binary_columns_is_utf8_or_a_mistake(tmp_path: Path) -> None:
    good, bad = read(parquet(tmp_path / "a.parquet", {"text": ["é".encode(), b"\xe9"]}))
    assert isinstance(good, Record) and good.content == "é"
    assert isinstance(bad, Mistake) and bad.undecodable
