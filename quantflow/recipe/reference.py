"""The reference of recipe keys for people, made from the JSON Schema so that it cannot go stale."""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]


def reference_page(schema: Schema) -> str:
    """A Markdown page with one row for each key.

    Args:
        schema: What `quantflow.recipe.json_schema.json_schema` gives.
    """
    written = (
        f"| `{key}` | {_kind(entry)} | {'yes' if required else ''} | {_text(entry, schema)} |"
        for key, entry, required in _keys(schema, schema, "")
    )
    rows = "\n".join(dict.fromkeys(written))  # what artifacts of every format have is there once
    return (
        "# Recipe keys\n\n"
        "Made from the schema by `python -m quantflow.recipe.reference > docs/recipe-keys.md`; "
        "`quantflow schema` prints the same for editors.\n"
        "Paths are relative to the recipe's file, `~` is your home folder, `${NAME}` and "
        "`${NAME:-default}` come from the environment.\n"
        "`--set key=value` overrides a key for one run: `--set data.calibration.windows=8`, "
        "`--set artifacts[0].group_size=32`.\n\n"
        "| key | holds | required | what it means |\n| --- | --- | --- | --- |\n" + rows + "\n"
    )


def _keys(schema: Schema, root: Schema, prefix: str) -> Iterator[tuple[str, Schema, bool]]:
    """Every key below an object's schema with its own entry, sections before what is in them."""
    for name, entry in schema.get("properties", {}).items():
        key = f"{prefix}{name}"
        yield key, entry, name in schema.get("required", ())
        for inner, mark in _sections(entry, root):
            yield from _keys(inner, root, f"{key}{mark}.")


def _sections(entry: Schema, root: Schema) -> Iterator[tuple[Schema, str]]:
    items = entry.get("items", {})
    for place, mark in ((entry, ""), (items, "[]")):
        for choice in (place, *place.get("oneOf", ()), *place.get("anyOf", ())):
            if "$ref" in choice:
                yield root["$defs"][choice["$ref"].rpartition("/")[2]], mark


def _kind(entry: Schema) -> str:
    """What a key may hold, in words."""
    if "const" in entry:
        return f"`{entry['const']}`"
    if "enum" in entry:
        return ", ".join(f"`{value}`" for value in entry["enum"])
    choices = [choice for choice in entry.get("anyOf", ()) if choice.get("type") != "null"]
    if choices:
        return " or ".join(_kind(choice) for choice in choices)
    if "$ref" in entry:
        return "section"
    names = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "array": "list",
        "boolean": "true or false",
    }
    return names.get(str(entry.get("type")), "section")


def _text(entry: Schema, root: Schema) -> str:
    """A key's own description, else that of the section it refers to."""
    referred = root["$defs"].get(entry.get("$ref", "").rpartition("/")[2], {})
    description = str(entry.get("description") or referred["description"])
    words: list[str] = description.replace("|", "\\|").split()
    return " ".join(words)


if __name__ == "__main__":
    from quantflow.recipe.json_schema import json_schema

    print(reference_page(json_schema()), end="")
