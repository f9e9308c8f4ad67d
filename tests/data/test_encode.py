import json
from pathlib import Path
from typing import Any

import pytest

from quantflow.data.encode import Encoder, TokenizedDocument, tokenize_records
from quantflow.data.jsonl import read_records
from quantflow.errors import DataError, SourceError
from tests.data.conftest import ASSISTANT, BOS, DATED_TEMPLATE, EOS, FIRST_WORD, USER, write_source

CHAT = [{"role": "user", "content": "w1 w2"}, {"role": "assistant", "content": "w3"}]


def tokenize(tmp_path: Path, encoder: Encoder, *lines: dict[str, Any]) -> list[TokenizedDocument]:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tokenize_records(read_records([path], lambda _: None), encoder)


def test_a_text_gets_the_special_tokens_that_the_tokenizer_adds(tmp_path: Path, encoder: Encoder) -> None:
    (document,) = tokenize(tmp_path, encoder, {"text": "w1 w2"})
    assert document.tokens.tolist() == [BOS, FIRST_WORD + 1, FIRST_WORD + 2]


def test_messages_get_the_template_own_special_tokens_once_and_no_generation_prompt(
    tmp_path: Path, encoder: Encoder
) -> None:
    (document,) = tokenize(tmp_path, encoder, {"messages": CHAT})
    word = FIRST_WORD
    assert document.tokens.tolist() == [BOS, USER, word + 1, word + 2, EOS, ASSISTANT, word + 3, EOS]


def test_a_document_without_id_is_named_after_its_content_not_its_place(
    tmp_path: Path, encoder: Encoder
) -> None:
    (first,) = tokenize(tmp_path, encoder, {"text": "w1"})
    other, second = tokenize(tmp_path, encoder, {"text": "w2"}, {"text": "w1"})
    assert first.id == second.id == first.digest[:16]
    assert other.id != first.id


def test_a_model_without_chat_template_cannot_take_messages(tmp_path: Path) -> None:
    encoder = Encoder(write_source(tmp_path, chat_template=None) / "checkpoint")
    with pytest.raises(DataError, match="no chat template") as caught:
        tokenize(tmp_path, encoder, {"text": "w1"}, {"messages": CHAT})
    assert caught.value.where.endswith("a.jsonl:2")
    assert "instruct model" in caught.value.hint


def test_messages_that_the_template_refuses_are_a_mistake_at_their_line(
    tmp_path: Path, encoder: Encoder
) -> None:
    with pytest.raises(DataError, match="tools are not for us") as caught:
        tokenize(tmp_path, encoder, {"text": "w1"}, {"messages": [{"role": "tool", "content": "w1"}]})
    assert caught.value.where.endswith("a.jsonl:2")


def test_a_template_that_asks_for_today_gives_the_same_tokens_on_any_day(tmp_path: Path) -> None:
    encoder = Encoder(write_source(tmp_path, chat_template=DATED_TEMPLATE) / "checkpoint")
    assert not encoder.date_asked
    (document,) = tokenize(tmp_path, encoder, {"messages": CHAT})
    assert document.tokens[1] == FIRST_WORD + 26  # of 26 July 2024
    assert encoder.date_asked


def test_batches_of_any_size_give_the_same_documents(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [{"text": f"w{i} w{i + 1}"} if i % 2 else {"messages": CHAT[: 1 + i % 3]} for i in range(20)]

    def documents() -> list[tuple[str, list[int]]]:
        return sorted((d.digest, d.tokens.tolist()) for d in tokenize(tmp_path, encoder, *lines))

    whole = documents()
    monkeypatch.setattr("quantflow.data.encode._BATCH_CHARACTERS", 12)
    assert documents() == whole
    assert len(whole) == 20


def test_a_folder_without_a_tokenizer_is_an_error_that_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="tokenizer cannot be loaded") as caught:
        Encoder(tmp_path)
    assert "tokenizer.json" in caught.value.hint
