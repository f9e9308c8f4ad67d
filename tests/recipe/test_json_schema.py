"""What editors are told about recipes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quantflow.recipe.json_schema import json_schema

SHIPPED = Path(__file__).parents[2] / "recipes" / "schema.json"


def keys_of(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for section in (schema, *schema["$defs"].values()):
        for name, entry in section["properties"].items():
            # A section that is described as its key is carries the description itself.
            target = schema["$defs"].get(entry.get("$ref", "").removeprefix("#/$defs/"), {})
            yield f"{section['title']}.{name}", {"description": target.get("description"), **entry}


def test_the_shipped_schema_is_up_to_date() -> None:
    # To renew it: quantflow schema > recipes/schema.json
    assert json.loads(SHIPPED.read_text(encoding="utf-8")) == json_schema()


def test_every_key_is_described() -> None:
    keys = dict(keys_of(json_schema()))
    assert len(keys) > 25
    assert [name for name, entry in keys.items() if not str(entry["description"]).endswith(".")] == []


def test_every_default_is_named_in_its_description() -> None:
    for name, entry in keys_of(json_schema()):
        if "default" in entry and not isinstance(entry["default"], dict):
            value = entry["default"]
            default = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
            assert f"Default: {default}" in entry["description"], name


def test_unknown_keys_are_refused_by_editors_too() -> None:
    schema = json_schema()
    assert schema["additionalProperties"] is False
    assert all(section["additionalProperties"] is False for section in schema["$defs"].values())
