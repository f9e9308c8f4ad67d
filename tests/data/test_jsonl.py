import json
from pathlib import Path

import pytest

from quantflow.data.encoding import encoding_of
from quantflow.data.files import find_files
from quantflow.data.params import ReadParams
from quantflow.data.read import read_records
from quantflow.data.record import Mistake, Record
from quantflow.errors import DataError
from tests.data.reading import make_params, read


def read_line(tmp_path: Path, line: bytes) -> Record | Mistake:
    path = tmp_path / "orders.jsonl"
    path.write_bytes(line)
    (outcome,) = read(path)
    return outcome


def test_a_line_has_a_text_and_may_name_itself_and_its_slice(tmp_path: Path) -> None:
    record = read_line(tmp_path, b'{"text": "caf\xc3\xa9", "id": "a-1", "slice": "billing", "author": 3}')
    assert isinstance(record, Record)
    assert (record.content, record.id, record.slice) == ("café", "a-1", "billing")
    assert record.where == f"{tmp_path}/orders.jsonl:1"


def test_the_slice_is_the_file_stem_where_the_line_names_none(tmp_path: Path) -> None:
    record = read_line(tmp_path, b'{"text": "hello"}')
    assert isinstance(record, Record)
    assert (record.slice, record.id) == ("orders", None)


def test_messages_need_not_alternate(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": ""}]
    record = read_line(tmp_path, json.dumps({"messages": messages}).encode())
    assert isinstance(record, Record)
    assert record.content == messages


def test_blank_lines_are_skipped_and_counted_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\n{"text": "one"}\r\n   \n{"text": "two"}')
    assert [(r.where[-1], getattr(r, "content", None)) for r in read(path)] == [("2", "one"), ("4", "two")]


def test_a_byte_order_mark_at_the_start_is_no_mistake(tmp_path: Path) -> None:
    assert isinstance(read_line(tmp_path, b'\xef\xbb\xbf{"text": "one"}'), Record)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text": "a"', "not valid JSON: Expecting ',' delimiter (column 13)"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"text": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'["text"]', "a JSON object is wanted, this is a list"),
        (b'{"Text": "a"}', "has neither `text` nor `messages`"),
        (b'{"text": "a", "messages": []}', "has both `text` and `messages`"),
        (b'{"text": null}', "`text` has to be a string, this is null"),
        (b'{"text": " \\n"}', "`text` is empty"),
        (b'{"text": "a", "slice": "' + b"s" * 201 + b'"}', "at most 200 characters, this has 201"),
        (b'{"text": "\\ud83d"}', "half of a surrogate pair"),
        (b'{"text": "a", "slice": "\\ud83d"}', "half of a surrogate pair"),
        (b'{"text": "a", "id": 7.5}', "`id` has to be a string that is not empty, this is a number"),
        (b'{"text": "a", "id": {}}', "`id` has to be a string that is not empty, this is an object"),
        (b'{"text": "a\\u0000b"}', "holds the character NUL"),
        (b'{"text": NaN}', "`text` has to be a string, this is a number"),
        (
            b'{"text": "a", "slice": ""}',
            "`slice` has to be a string that is not empty, this is an empty string",
        ),
        (b'{"messages": "hi"}', "`messages` has to be a list, this is a string"),
        (b'{"messages": []}', "`messages` is empty"),
        (b'{"messages": ["hi"]}', "`messages[0]` has to be an object with `role` and `content`"),
        (b'{"messages": [{"content": "hi"}]}', "`messages[0]` has no `role`"),
        (b'{"messages": [{"role": "user"}]}', "`messages[0]` has no `content`"),
        (
            b'{"messages": [{"role": "user", "content": ["hi"]}]}',
            "`messages[0].content` has to be a string, this is a list",
        ),
        (b'{"messages": [{"role": "", "content": "hi"}]}', "`messages[0].role` is empty"),
        (b'{"messages": [{"role": 1, "content": "hi"}]}', "`messages[0].role` has to be a string"),
        (b'{"messages": [{"role": "SYSTEM", "content": "hi"}]}', "say in data.roles what it is"),
        (b'{"messages": [{"role": "user", "content": " "}]}', "every message is empty"),
    ],
)
def test_a_line_that_cannot_be_used_says_why_and_where(tmp_path: Path, line: bytes, message: str) -> None:
    outcome = read_line(tmp_path, line)
    assert isinstance(outcome, Mistake)
    assert message in outcome.message
    assert outcome.where == f"{tmp_path}/orders.jsonl:1"


def test_a_file_that_is_not_there_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file") as caught:
        read(tmp_path / "missing.jsonl")
    assert caught.value.where == f"{tmp_path}/missing.jsonl"


def test_documents_are_there_before_the_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "x" * 100_000}) + "\n" + '{"text": "one"}\n' * 50_000)
    advanced: list[int] = []
    params = make_params(path)
    files = find_files(params)
    stream = read_records(files, [encoding_of(files[0], "auto")], ReadParams(), advanced.append)
    next(stream), next(stream)
    assert 0 < sum(advanced) < path.stat().st_size / 2
    assert len(list(stream)) == 49_999
    assert sum(advanced) == path.stat().st_size


def test_a_line_that_is_not_utf8_among_many_that_are_is_a_mistake_at_its_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"text": "café"}\n'.encode() * 3 + b'{"text": "\xff\xfe"}\n')
    outcome = read(path)[-1]
    assert isinstance(outcome, Mistake)
    assert (outcome.where, outcome.message) == (f"{path}:4", "not UTF-8 (byte 11 of the line)")
    assert outcome.undecodable


def test_a_number_will_do_for_an_id_or_a_slice(tmp_path: Path) -> None:
    record = read_line(tmp_path, b'{"text": "hello", "id": 7, "slice": 2024}')
    assert isinstance(record, Record)
    assert (record.id, record.slice) == ("7", "2024")


def test_null_is_no_id_and_no_slice(tmp_path: Path) -> None:
    record = read_line(tmp_path, b'{"text": "hello", "id": null, "slice": null}')
    assert isinstance(record, Record)
    assert (record.id, record.slice) == (None, "orders")


def test_a_line_longer_than_a_document_may_be_is_a_mistake_and_the_next_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(b'{"text": "' + b"x" * (20 << 20) + b'"}\n{"text": "next"}\n')
    long, following = read(path)
    assert isinstance(long, Mistake) and "longer than 8 MiB" in long.message
    assert isinstance(following, Record) and following.where == f"{path}:2"
