from pathlib import Path

from quantflow.recipe.json_schema import json_schema
from quantflow.recipe.reference import reference_page

PAGE = Path(__file__).parents[2] / "docs" / "recipe-keys.md"


def test_the_shipped_page_is_what_the_schema_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference_page(json_schema())


def test_every_key_of_every_section_has_a_row() -> None:
    page = reference_page(json_schema())
    for key in (
        "version",
        "model.source",
        "data.calibration.windows",
        "artifacts[].group_size",
        "gate.kl.max_mean",
    ):
        assert f"| `{key}` |" in page
    for definition in json_schema()["$defs"].values():
        for name in definition.get("properties", {}):
            assert f"{name}` |" in page
