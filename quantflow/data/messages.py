"""The messages of a conversation as chat templates want them, and why they are none."""

import json
from collections.abc import Mapping
from typing import Any

from quantflow.data.params import FieldParams
from quantflow.data.paths import MissingError, look_up
from quantflow.data.record import kind_of

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function", "ipython"})
"""Roles that published chat templates tell apart; they write out any other word without a complaint."""

# What templates read of a message beside role and content; anything else is the data's own business.
_KEPT = ("name", "tool_calls", "tool_call_id", "reasoning_content")


class WrongMessageError(Exception):
    """The argument says what is wrong."""


def read_messages(
    value: object, name: str, fields: FieldParams, roles: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Check messages and bring them into the form of chat templates.

    Args:
        value: What the data have; JSON text where a table can hold no lists.
        name: What the data call it.
        fields: Where role and content are.
        roles: The data's own word → role.

    Raises:
        WrongMessageError: It is no list of messages, or none of them says anything.
    """
    messages = parsed(value, name)
    if not isinstance(messages, list):
        raise WrongMessageError(f"`{name}` has to be a list, this is {kind_of(messages)}")
    read = [_message(item, f"{name}[{i}]", fields, roles) for i, item in enumerate(messages)]
    if not read:
        raise WrongMessageError(f"`{name}` is empty")
    if not any((message["content"] or "").strip() or message.get("tool_calls") for message in read):
        raise WrongMessageError("every message is empty")
    return read


def read_tools(value: object, name: str) -> list[dict[str, Any]] | None:
    """Check a conversation's tools.

    Raises:
        WrongMessageError: They are no list of objects.
    """
    tools = parsed(value, name)
    if tools is None or tools == [] or tools == "":
        return None
    if not isinstance(tools, list):
        raise WrongMessageError(f"`{name}` has to be a list, this is {kind_of(tools)}")
    for i, tool in enumerate(tools):
        if not isinstance(tool, dict):
            raise WrongMessageError(f"`{name}[{i}]` has to be an object, this is {kind_of(tool)}")
    return tools


def parsed(value: object, name: str) -> object:
    """What JSON text holds, where a text begins like a JSON list or object; anything else as it is.

    Raises:
        WrongMessageError: It begins like one and is none.
    """
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise WrongMessageError(f"`{name}` is not valid JSON: {error}") from error


def _message(item: object, name: str, fields: FieldParams, roles: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise WrongMessageError(
            f"`{name}` has to be an object with `{fields.role}` and `{fields.content}`, this is "
            f"{kind_of(item)}"
        )
    kept = {key: item[key] for key in _KEPT if item.get(key) is not None}
    if "tool_calls" in kept:
        kept["tool_calls"] = _tool_calls(kept["tool_calls"], f"{name}.tool_calls")
    role = _role(_part(item, fields.role, name), f"{name}.{fields.role}", roles)
    # A name, or the call that a tool answers, is not something said.
    says_otherwise = not kept.keys().isdisjoint({"tool_calls", "reasoning_content"})
    try:
        content = _part(item, fields.content, name)
    except WrongMessageError:
        if not says_otherwise:
            raise
        content = None
    return {"role": role, "content": _content(content, f"{name}.{fields.content}", says_otherwise)} | kept


def _part(item: Mapping[str, Any], path: str, name: str) -> object:
    try:
        return look_up(item, path)
    except MissingError as error:
        raise WrongMessageError(f"`{name}` has no `{error}`") from error


def _role(value: object, name: str, roles: Mapping[str, str]) -> str:
    if not isinstance(value, str):
        raise WrongMessageError(f"`{name}` has to be a string, this is {kind_of(value)}")
    if not value.strip():
        raise WrongMessageError(f"`{name}` is empty")
    role = roles.get(value, value)
    if role not in ROLES:
        raise WrongMessageError(
            f"`{name}` is `{value[:40]}`, which chat templates do not know: say in data.roles what it is, "
            f"such as `roles: {{user: [{value[:40]}]}}`"
        )
    return role


def _content(value: object, name: str, may_be_missing: bool) -> str | None:
    if isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
        return "\n".join(_text_part(part, f"{name}[{i}]") for i, part in enumerate(value))
    if isinstance(value, str) or (value is None and may_be_missing):
        return value
    raise WrongMessageError(f"`{name}` has to be a string, this is {kind_of(value)}")


def _text_part(part: Mapping[str, Any], name: str) -> str:
    text = part.get("text")
    if part.get("type", "text") != "text" or not isinstance(text, str):
        raise WrongMessageError(f"`{name}` is not text (its type is `{str(part.get('type'))[:40]}`)")
    return text


def _tool_calls(value: object, name: str) -> list[dict[str, Any]]:
    """Calls with their arguments as objects: templates write them as JSON, which would quote a text again."""
    calls = parsed(value, name)
    if not isinstance(calls, list):
        raise WrongMessageError(f"`{name}` has to be a list, this is {kind_of(calls)}")
    return [_tool_call(call, f"{name}[{i}]") for i, call in enumerate(calls)]


def _tool_call(call: object, name: str) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise WrongMessageError(f"`{name}` has to be an object, this is {kind_of(call)}")
    inner = call.get("function", call)
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        raise WrongMessageError(f"`{name}` names no function")
    function = {"name": inner["name"], "arguments": parsed(inner.get("arguments") or {}, f"{name}.arguments")}
    return {"type": "function", "function": function} | ({"id": call["id"]} if call.get("id") else {})
