import json
from pathlib import Path

import pytest

from quantflow.data.encode import Encoder, tokenize_records
from quantflow.data.jsonl import Mistake, Record, read_records
from quantflow.errors import DataError


def read(path: Path) -> list[Record | Mistake]:
    return list(read_records([path], lambda _: None))


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
        (b'{"text": "\xff\xfe"}', "not UTF-8 (byte 11 of the line)"),
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
        (b'{"text": "a", "id": 7}', "`id` has to be a string that is not empty, this is a number"),
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
        (b'{"messages": [{"role": "user", "content": " "}]}', "every message is empty"),
    ],
)
def test_a_line_that_cannot_be_used_says_why_and_where(tmp_path: Path, line: bytes, message: str) -> None:
    outcome = read_line(tmp_path, line)
    assert isinstance(outcome, Mistake)
    assert message in outcome.message
    assert outcome.where == f"{tmp_path}/orders.jsonl:1"


def test_one_mistake_is_an_error_at_its_line(tmp_path: Path, encoder: Encoder) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "w1"}\n{"txt": "w1"}\n')
    with pytest.raises(DataError) as caught:
        tokenize_records(read_records([path], lambda _: None), encoder)
    assert caught.value.where == f"{path}:2"
    assert caught.value.message == "has neither `text` nor `messages`"


def test_several_mistakes_are_named_together_and_at_most_five(tmp_path: Path, encoder: Encoder) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"text": "w{i}"}}\nnonsense\n' for i in range(7)))
    with pytest.raises(DataError) as caught:
        tokenize_records(read_records([path], lambda _: None), encoder)
    named = [line.split(": ")[0] for line in caught.value.message.splitlines()[1:]]
    assert named == [f"  {path}:{line}" for line in (2, 4, 6, 8, 10)]
    assert "the first 5" in caught.value.message


def test_a_file_that_is_not_there_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file") as caught:
        read(tmp_path / "missing.jsonl")
    assert caught.value.where == f"{tmp_path}/missing.jsonl"


def test_lines_are_read_one_at_a_time_and_their_bytes_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\nnonsense\n')
    advanced: list[int] = []
    stream = read_records([path], advanced.append)
    assert isinstance(next(stream), Record)
    assert advanced == []
    assert isinstance(next(stream), Mistake)
    assert advanced == [16]
    assert list(stream) == []
    assert sum(advanced) == path.stat().st_size
