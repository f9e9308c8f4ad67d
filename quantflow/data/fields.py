"""From a row or object to a document, by the recipe's field mapping."""

from collections.abc import Mapping
from typing import Any

from quantflow.data.messages import WrongMessageError, read_messages, read_tools
from quantflow.data.params import FieldParams, ReadParams
from quantflow.data.paths import MissingError, first_name, look_up
from quantflow.data.record import MAX_DOCUMENT, Mistake, Record, digest_of, kind_of

BETWEEN_FIELDS = "\n\n"
"""What joins the texts of several fields: a blank line, as between paragraphs."""

LONGEST_NAME = 200
"""Names of documents and slices are for people; what is longer is text in the wrong place."""

_SURROGATE = "holds half of a surrogate pair (an escape like \\ud83d alone): that is no text"
_NUL = "holds the character NUL: this is binary data, not text"


def to_record(
    row: object, where: str, default_slice: str, reading: ReadParams, key: str | None = None
) -> Record | Mistake:
    """Read one document.

    Args:
        row: A JSON value or a table's row.
        where: File and line.
        default_slice: Slice of a document that names none.
        reading: The field mapping.
        key: The name under which a file holds the object; the id of a document that has no other.
    """
    if not isinstance(row, Mapping):
        return Mistake(where, f"a JSON object is wanted, this is {kind_of(row)}")
    fields = reading.fields
    try:
        content = _content(row, fields, reading.roles)
        tools = None
        if not isinstance(content, str):
            tools = read_tools(_optional(row, fields.tools), fields.tools)
        name = _label(row, fields.id, "id" in fields.required) or key
        part = _label(row, fields.slice, "slice" in fields.required) or default_slice
    except (MissingError, WrongMessageError) as error:
        return Mistake(where, str(error))
    return make_record(where, name, part, content, tools)


def make_record(
    where: str,
    name: str | None,
    part: str,
    content: str | list[dict[str, Any]],
    tools: list[dict[str, Any]] | None = None,
) -> Record | Mistake:
    """A document, or why its characters are not those of a text."""
    try:
        digest = digest_of(content, tools)
        f"{name}{part}".encode()
    except UnicodeEncodeError:
        return Mistake(where, _SURROGATE)
    except (ValueError, RecursionError) as error:
        return Mistake(where, f"its tools cannot be written as JSON: {error}")
    record = Record(where, name, part, content, tools, digest)
    if record.characters > MAX_DOCUMENT:
        return Mistake(where, f"the document is longer than {MAX_DOCUMENT >> 20} MiB: that is an archive")
    return Mistake(where, _NUL) if "\0" in record.own_text else record


def columns_of(reading: ReadParams, present: list[str]) -> list[str]:
    """Those of a table's columns that the mapping looks at."""
    fields = reading.fields
    paths = (*fields.text, fields.messages, fields.tools, fields.slice, fields.id)
    wanted = {name for path in paths if path for name in (path, first_name(path))}
    return [name for name in present if name in wanted]


def missing_columns(reading: ReadParams, present: list[str]) -> str | None:
    """What a table lacks to hold documents, in plain words; None where it has what is needed."""
    fields = reading.fields
    named = [*fields.text, *([fields.messages] if fields.messages else [])]

    def there(path: str) -> bool:
        return path in present or first_name(path) in present

    has_text = bool(fields.text) and all(there(path) for path in fields.text)
    has_messages = bool(fields.messages) and there(fields.messages)
    lacking = [] if has_text or has_messages else named
    lacking += [path for key in fields.required if not there(path := getattr(fields, key))]
    if not lacking:
        return None
    listed = ", ".join(f"`{name[:40]}`" for name in present[:20]) + (" …" if len(present) > 20 else "")
    return f"there is no column {' or '.join(f'`{name}`' for name in lacking)}; the columns are {listed}"


def _content(
    row: Mapping[str, Any], fields: FieldParams, roles: Mapping[str, str]
) -> str | list[dict[str, Any]]:
    has_text = any(path in row or first_name(path) in row for path in fields.text)
    has_messages = bool(fields.messages) and (fields.messages in row or first_name(fields.messages) in row)
    if has_text and has_messages:
        # A table has every column in every row: the one that is filled counts.
        has_text = _is_filled(row, fields.text[0])
        has_messages = _is_filled(row, fields.messages)
    if has_text and has_messages:
        raise WrongMessageError(
            f"has both `{fields.text[0]}` and `{fields.messages}`; which one is the document? Name it in "
            "data.fields"
        )
    if has_messages:
        return read_messages(look_up(row, fields.messages), fields.messages, fields, roles)
    if has_text:
        return _text(row, fields.text)
    names = [f"`{name}`" for name in (*fields.text[:1], fields.messages) if name]
    raise WrongMessageError(f"has neither {' nor '.join(names)}" if len(names) > 1 else f"has no {names[0]}")


def _is_filled(row: Mapping[str, Any], path: str) -> bool:
    value = _optional(row, path)
    return value is not None and value != ""


def _text(row: Mapping[str, Any], paths: tuple[str, ...]) -> str:
    parts: list[str] = []
    for path in paths:
        try:
            value = look_up(row, path)
        except MissingError as error:
            raise WrongMessageError(f"has no `{error}`") from error
        texts = value if isinstance(value, list) and value else [value]
        for text in texts:
            if not isinstance(text, str) and not (text is None and len(paths) > 1):
                raise WrongMessageError(f"`{path}` has to be a string, this is {kind_of(text)}")
        parts += [text for text in texts if text]
    joined = BETWEEN_FIELDS.join(parts)
    if not joined.strip():
        raise WrongMessageError(
            f"{' and '.join(f'`{path}`' for path in paths)} {'are' if len(paths) > 1 else 'is'} empty"
        )
    return joined


def _optional(row: Mapping[str, Any], path: str) -> Any:
    try:
        return look_up(row, path)
    except MissingError:
        return None


def _label(row: Mapping[str, Any], path: str, required: bool) -> str | None:
    value = _optional(row, path)
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        value = ",".join(value)
    if value is None:
        if required:
            raise WrongMessageError(f"has no `{path}`")
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and len(value) > LONGEST_NAME:
        raise WrongMessageError(
            f"`{path}` is a name of at most {LONGEST_NAME} characters, this has {len(value)}"
        )
    if not isinstance(value, str) or not value.strip():
        raise WrongMessageError(f"`{path}` has to be a string that is not empty, this is {kind_of(value)}")
    return value
