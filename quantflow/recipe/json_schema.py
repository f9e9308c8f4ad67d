"""The JSON Schema of recipes, for editors and for `quantflow schema`."""

from typing import Any

from quantflow.recipe.schema import Recipe


def json_schema() -> dict[str, Any]:
    """Every key with its type, bounds, default and description, as JSON Schema 2020-12."""
    schema = Recipe.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "QuantFlow recipe"}
