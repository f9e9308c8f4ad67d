"""Whatever is in the file or on the command line, the answer is a recipe or a RecipeError."""

import contextlib
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quantflow.errors import RecipeError
from quantflow.recipe.load import load_recipe
from tests.recipe.conftest import SOUND

PIECES = [
    "version: 1",
    "name: ",
    "model:",
    "  source: ",
    "artifacts:",
    "- ",
    "{",
    "}",
    "[",
    "]",
    "&a ",
    "*a",
    "!!x ",
]
PIECES += [
    "data:",
    "files: ",
    "${X}",
    "${",
    "'",
    '"',
    "\n",
    "  ",
    "\t",
    ": ",
    "#",
    "---",
    "|",
    "<<: ",
    "null",
    "1e999",
]
anything = st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
in_shared_folder = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@in_shared_folder
@given(text=anything)
def test_any_file_is_answered(folder: Path, text: str) -> None:
    (folder / "r.yaml").write_bytes(text.encode("utf-8", errors="surrogatepass"))
    with contextlib.suppress(RecipeError):
        load_recipe(folder / "r.yaml", (), {"X": "x"})


KEYS = [
    "name",
    "data",
    "artifacts[0]",
    "artifacts.0",
    "bits",
    "files[0]",
    "model",
    "source",
    "x",
    "",
    "[0]",
    ".",
]
keys = st.lists(st.sampled_from(KEYS), max_size=5).map(".".join)


@in_shared_folder
@given(overrides=st.lists(st.tuples(keys, anything).map("=".join) | anything, max_size=3))
def test_any_override_is_answered(folder: Path, overrides: list[str]) -> None:
    (folder / "r.yaml").write_text(SOUND)
    with contextlib.suppress(RecipeError):
        load_recipe(folder / "r.yaml", overrides, {"X": "x"})
