import json
from pathlib import Path
from typing import Any

import pytest

from quantflow.data.cut import Cutting
from quantflow.data.draw import Drawn, draw
from quantflow.data.encode import Encoder, TokenizedDocument
from quantflow.data.mistakes import Mistakes
from quantflow.data.need import need_of
from quantflow.errors import DataError, SourceError
from tests.data.conftest import ASSISTANT, BOS, DATED_TEMPLATE, EOS, FIRST_WORD, USER, write_source
from tests.data.reading import make_params, read

CHAT = [{"role": "user", "content": "w1 w2"}, {"role": "assistant", "content": "w3"}]


def take(tmp_path: Path, encoder: Encoder, *lines: dict[str, Any]) -> list[Drawn]:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = make_params(path)
    drawn, _ = draw(read(path), encoder, need_of(given), given.seed, Cutting(8, 8, None), Mistakes("refuse"))
    return sorted(drawn, key=lambda item: str(item.document and item.document.digest))


def tokenize(tmp_path: Path, encoder: Encoder, *lines: dict[str, Any]) -> list[TokenizedDocument]:
    return [item.document for item in take(tmp_path, encoder, *lines) if item.document is not None]


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
    both = tokenize(tmp_path, encoder, {"text": "w2"}, {"text": "w1"})
    assert first.id == first.digest[:16]
    assert first.id in {document.id for document in both}
    assert len({document.id for document in both}) == 2


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
    lines = [{"text": f"w{i} w{i + 1}"} if i % 2 else {"messages": CHAT * (i + 1)} for i in range(20)]

    def documents() -> list[tuple[str, list[int]]]:
        return sorted((d.digest, d.tokens.tolist()) for d in tokenize(tmp_path, encoder, *lines))

    whole = documents()
    monkeypatch.setattr("quantflow.data.draw._BATCH_CHARACTERS", 12)
    assert documents() == whole
    assert len(whole) == 20


def test_a_folder_without_a_tokenizer_is_an_error_that_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="tokenizer cannot be loaded") as caught:
        Encoder(tmp_path)
    assert "tokenizer.json" in caught.value.hint


TOOL = {"type": "function", "function": {"name": "w9", "parameters": {"type": "object"}}}
TOOL_TEMPLATE = (
    "{{ bos_token }}{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}"
    "{% for message in messages %}<{{ message.role }}> {{ message.content or '' }} "
    "{% for call in message.tool_calls or [] %}{{ call.function.name }} {{ call.function.arguments.city }} "
    "{% endfor %}"
    "{{ eos_token }}{% endfor %}"
)


def test_tools_are_given_to_the_chat_template(tmp_path: Path) -> None:
    encoder = Encoder(write_source(tmp_path, chat_template=TOOL_TEMPLATE) / "checkpoint")
    (with_tool,) = take(tmp_path, encoder, {"messages": CHAT, "tools": [TOOL]})
    assert with_tool.document is not None and with_tool.rendered is not None
    assert with_tool.document.tokens.tolist()[:3] == [BOS, FIRST_WORD + 9, USER]
    assert not with_tool.rendered.tools_lost and not with_tool.rendered.text_lost


def test_arguments_of_a_call_reach_the_template_as_an_object_however_they_are_stored(tmp_path: Path) -> None:
    encoder = Encoder(write_source(tmp_path, chat_template=TOOL_TEMPLATE) / "checkpoint")
    for arguments in ({"city": "w5"}, '{"city": "w5"}'):
        call = {"type": "function", "function": {"name": "w9", "arguments": arguments}}
        messages = [CHAT[0], {"role": "assistant", "content": None, "tool_calls": [call]}]
        (document,) = tokenize(tmp_path, encoder, {"messages": messages})
        word = FIRST_WORD
        assert document.tokens.tolist()[-4:] == [ASSISTANT, word + 9, word + 5, EOS]


@pytest.mark.parametrize("content", ["message.content | trim", "' ' + message.content"])
def test_a_message_of_calls_alone_does_not_say_none(tmp_path: Path, content: str) -> None:
    template = f"{{% for message in messages %}}<{{{{ message.role }}}}> {{{{ {content} }}}} {{% endfor %}}"
    encoder = Encoder(write_source(tmp_path, chat_template=template) / "checkpoint")
    call = {"function": {"name": "w9", "arguments": {}}}
    messages = [CHAT[0], {"role": "assistant", "content": None, "tool_calls": [call]}, CHAT[0]]
    (item,) = take(tmp_path, encoder, {"messages": messages})
    assert item.document is not None and item.rendered is not None
    told = [USER, FIRST_WORD + 1, FIRST_WORD + 2]
    assert item.document.tokens.tolist() == [*told, ASSISTANT, *told]
    assert item.rendered.tools_lost


def test_a_template_that_looks_for_messages_without_content_finds_them(tmp_path: Path) -> None:
    template = "{% for message in messages %}{{ 'w1' if message.content is none else 'w2' }} {% endfor %}"
    encoder = Encoder(write_source(tmp_path, chat_template=template) / "checkpoint")
    call = {"function": {"name": "w9", "arguments": {}}}
    messages = [CHAT[0], {"role": "assistant", "tool_calls": [call]}]
    (document,) = tokenize(tmp_path, encoder, {"messages": messages})
    assert document.tokens.tolist() == [FIRST_WORD + 2, FIRST_WORD + 1]


def test_a_template_that_leaves_out_tools_or_calls_is_noticed(tmp_path: Path, encoder: Encoder) -> None:
    call = {"function": {"name": "w9", "arguments": {}}}
    called = [CHAT[0], {"role": "assistant", "content": "w3", "tool_calls": [call]}]
    lines: list[dict[str, Any]] = [{"messages": CHAT, "tools": [TOOL]}, {"messages": called}]
    for line in lines:
        (item,) = take(tmp_path, encoder, line)
        assert item.rendered is not None and item.rendered.tools_lost


def test_a_template_that_leaves_out_what_is_said_is_noticed(tmp_path: Path) -> None:
    template = "{{ bos_token }}{{ messages[0].content }}"
    encoder = Encoder(write_source(tmp_path, chat_template=template) / "checkpoint")
    whole, cut = take(tmp_path, encoder, {"messages": CHAT[:1]}), take(tmp_path, encoder, {"messages": CHAT})
    assert [item.rendered.text_lost for item in (*whole, *cut) if item.rendered] == [False, True]


def test_conversations_with_other_tools_are_other_documents(tmp_path: Path, encoder: Encoder) -> None:
    given: list[dict[str, Any]] = [{}, {"tools": [TOOL]}, {"tools": []}]
    lines = [{"messages": CHAT} | more for more in given]
    assert len(tokenize(tmp_path, encoder, *lines)) == 2
