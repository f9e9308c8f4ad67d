"""The field mapping: where text, messages, tools, slice and id are, whatever the data call them."""

from typing import Any

import pytest

from quantflow.data.fields import to_record
from quantflow.data.params import FieldParams, ReadParams
from quantflow.data.record import Mistake, Record

HI = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": {"order": 7}}}


def map_row(row: object, roles: dict[str, str] | None = None, **fields: Any) -> Record | Mistake:
    return to_record(row, "f:1", "file", ReadParams(fields=FieldParams(**fields), roles=roles or {}))


def record(row: object, roles: dict[str, str] | None = None, **fields: Any) -> Record:
    outcome = map_row(row, roles, **fields)
    assert isinstance(outcome, Record), outcome
    return outcome


def mistake(row: object, roles: dict[str, str] | None = None, **fields: Any) -> str:
    outcome = map_row(row, roles, **fields)
    assert isinstance(outcome, Mistake), outcome
    return outcome.message


def test_a_path_leads_into_objects_and_lists() -> None:
    row = {"ticket": {"parts": [{"body": "one"}, {"body": "two"}], "tags": ["a", "b"]}}
    assert record(row, text=("ticket.parts[].body",), messages="").content == "one\n\ntwo"
    assert record(row, text=("ticket.parts[1].body",), messages="").content == "two"
    assert record(row, text=("ticket.parts[].body",), messages="", slice="ticket.tags").slice == "a,b"


def test_a_field_whose_name_is_the_whole_path_comes_first() -> None:
    assert record({"a.b": "whole", "a": {"b": "inner"}}, text=("a.b",), messages="").content == "whole"


def test_texts_of_several_fields_are_joined_by_blank_lines_and_empty_ones_left_out() -> None:
    row = {"subject": "s", "note": None, "body": "b", "end": ""}
    assert record(row, text=("subject", "note", "body", "end"), messages="").content == "s\n\nb"
    assert mistake({"subject": "", "body": None}, text=("subject", "body"), messages="") == (
        "`subject` and `body` are empty"
    )
    assert mistake({"subject": "s"}, text=("subject", "body"), messages="") == "has no `body`"


def test_named_fields_are_required_and_default_ones_are_not() -> None:
    assert record({"text": "t"}).slice == "file"
    assert mistake({"text": "t"}, slice="team", required=("slice",)) == "has no `team`"
    assert mistake({"text": "t"}, id="key", required=("id",)) == "has no `key`"


def test_a_row_of_named_texts_is_a_text_whatever_else_it_holds() -> None:
    row = {"text": "t", "messages": [HI]}
    assert record(row, text=("text",), messages="").content == "t"
    assert record(row, text=(), messages="messages").content == [HI]
    assert "has both" in mistake(row)


def test_in_a_table_the_column_that_is_filled_counts() -> None:
    assert record({"text": "t", "messages": None}).content == "t"
    assert record({"text": "", "messages": [HI]}).content == [HI]
    assert record({"text": None, "messages": [HI]}).content == [HI]


def test_the_words_for_roles_and_parts_are_the_data_own() -> None:
    row = {"turns": [{"speaker": "USER", "utterance": "hi"}, {"speaker": "SYSTEM", "utterance": "hello"}]}
    fields = {"text": (), "messages": "turns", "role": "speaker", "content": "utterance"}
    found = record(row, {"USER": "user", "SYSTEM": "assistant"}, **fields)
    assert found.content == [HI, {"role": "assistant", "content": "hello"}]


@pytest.mark.parametrize("role", ["SYSTEM", "System", "bot", "human"])
def test_a_word_that_no_template_knows_is_never_passed_on(role: str) -> None:
    message = mistake({"messages": [{"role": role, "content": "hi"}]})
    assert f"is `{role}`, which chat templates do not know: say in data.roles what it is" in message


def test_parts_of_a_content_that_are_text_are_joined_and_others_refused() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert record({"messages": [{"role": "user", "content": parts}]}).content == [
        {"role": "user", "content": "one\ntwo"}
    ]
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {}}]}
    assert "`messages[0].content[0]` is not text (its type is `image_url`)" in mistake({"messages": [image]})


def test_what_templates_read_of_a_message_is_kept_and_nothing_else() -> None:
    answer = {"role": "tool", "content": "sent", "name": "look_up", "tool_call_id": "c1", "latency": 3}
    called = {"role": "assistant", "content": None, "tool_calls": [CALL], "annotations": [1, 2]}
    assert record({"messages": [HI, called, answer]}).content == [
        HI,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {key: answer[key] for key in ("role", "content", "name", "tool_call_id")},
    ]


def test_system_turns_do_not_count_as_a_conversation_own_text() -> None:
    found = record({"messages": [{"role": "system", "content": "be kind"}, HI]})
    assert found.own_text == "hi"
    assert found.characters == 9


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": [HI], "tools": "nonsense"}, "`tools` has to be a list, this is a string"),
        ({"messages": [HI], "tools": "[nonsense"}, "`tools` is not valid JSON"),
        ({"messages": [HI], "tools": ["x"]}, "`tools[0]` has to be an object, this is a string"),
        ({"messages": [HI], "tools": [{"x": float("nan")}]}, "cannot be written as JSON"),
        ({"messages": [{**HI, "tool_calls": [{}]}]}, "`messages[0].tool_calls[0]` names no function"),
        ({"messages": [{**HI, "tool_calls": 3}]}, "`messages[0].tool_calls` has to be a list"),
        ({"messages": [{"role": "user", "content": None}]}, "`messages[0].content` has to be a string"),
        ({"messages": "[1, 2"}, "`messages` is not valid JSON"),
        ({"text": "t" * (8 << 20) + "t"}, "longer than 8 MiB"),
    ],
)
def test_what_cannot_be_a_conversation_says_why(row: dict[str, Any], message: str) -> None:
    assert message in mistake(row)


def test_tools_given_as_json_are_tools() -> None:
    assert record({"messages": [HI], "tools": '[{"name": "look_up"}]'}).tools == [{"name": "look_up"}]
    assert record({"messages": [HI], "tools": []}).tools is None


def test_what_is_said_beside_a_call_is_kept_wherever_it_stands() -> None:
    said = {"role": "assistant", "body": {"text": "I look it up"}, "tool_calls": [CALL]}
    called = {"role": "assistant", "tool_calls": [CALL]}
    content = record({"turns": [said, called]}, messages="turns", content="body.text").content
    assert [message["content"] for message in content if isinstance(message, dict)] == ["I look it up", None]


@pytest.mark.parametrize("more", [{"name": "Ann"}, {"tool_call_id": "c1"}])
def test_a_name_or_the_id_of_a_call_is_nothing_said(more: dict[str, str]) -> None:
    message = mistake({"messages": [HI, {"role": "tool", "content": None} | more]})
    assert message == "`messages[1].content` has to be a string, this is null"


def test_conversations_are_told_apart_by_their_calls_and_not_by_their_instructions() -> None:
    def own_text(*messages: dict[str, Any]) -> str:
        return record({"messages": list(messages)}).own_text

    instruction = {"role": "developer", "content": "You are an agent of Nordlicht."}
    called = {"role": "assistant", "tool_calls": [CALL]}
    assert own_text(instruction, HI) == own_text(HI) == "hi"
    assert own_text(called) == 'look_up {"order": 7}'
    assert own_text(instruction) == instruction["content"]
