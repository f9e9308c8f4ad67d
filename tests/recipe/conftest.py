"""A sound recipe to break in one place at a time."""

from collections.abc import Callable
from pathlib import Path

import pytest

from quantflow.errors import RecipeError
from quantflow.recipe.load import load_recipe
from quantflow.recipe.schema import Recipe

SOUND = """\
version: 1
name: sound
model:
  source: org/model
data:
  files: [texts/*.jsonl]
artifacts:
  - name: int4
    format: awq
    bits: 4
"""

Load = Callable[..., Recipe]
Refusal = Callable[..., RecipeError]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two text files in `texts/`."""
    (tmp_path / "texts").mkdir()
    for name in ("b.jsonl", "a.jsonl"):
        (tmp_path / "texts" / name).write_text('{"text": "x"}\n')
    return tmp_path


@pytest.fixture
def load(folder: Path) -> Load:
    """Load a recipe text as `folder/r.yaml`."""

    def load(text: str = SOUND, *overrides: str, **environ: str) -> Recipe:
        (folder / "r.yaml").write_text(text, encoding="utf-8")
        return load_recipe(folder / "r.yaml", overrides, environ)

    return load


@pytest.fixture
def refusal(load: Load, folder: Path) -> Refusal:
    """The error that loading ends in, with the folder's path shortened to nothing."""

    def refusal(text: str = SOUND, *overrides: str, **environ: str) -> RecipeError:
        with pytest.raises(RecipeError) as raised:
            load(text, *overrides, **environ)
        error = raised.value
        assert error.exit_code == 4
        message, where, hint = (
            part.replace(f"{folder}/", "") for part in (error.message, error.where, error.hint)
        )
        return RecipeError(message, where=where, hint=hint)

    return refusal
