"""What the pages say exists: links lead somewhere, recipes are recipes, commands are commands."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from quantflow.cli import app
from quantflow.recipe.load import load_recipe

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
_RECIPE = re.compile(r"```yaml\n(version: 1\n.+?)```", re.DOTALL)
_COMMAND = re.compile(r"^\$ quantflow (\w+)(.*)$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = _LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {target for target in _LINK.findall(index) if "/" not in target} == pages


@pytest.mark.parametrize("text", _RECIPE.findall(GUIDE), ids=lambda text: text.splitlines()[1])
def test_the_guide_s_recipes_are_recipes(text: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "letters.jsonl").write_text('{"text": "Hello"}\n')
    (tmp_path / "r.yaml").write_text(text)
    assert load_recipe(tmp_path / "r.yaml").artifacts


def options(text: str) -> Iterator[str]:
    """The options of a command line, without their values."""
    for word in text.partition(";")[0].split():
        if word.startswith("--"):
            yield word


def test_the_guide_s_commands_have_the_options_that_it_gives_them() -> None:
    found = _COMMAND.findall(GUIDE)
    assert {command for command, _ in found} == {"doctor", "plan", "run", "clean", "runs"}
    commands = typer.main.get_command(app)
    assert CliRunner().invoke(app, ["--help"]).exit_code == 0
    for command, rest in found:
        known = {option for parameter in commands.commands[command].params for option in parameter.opts}  # type: ignore[attr-defined]
        assert set(options(rest)) <= known


def test_the_readme_s_make_commands_are_those_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", makefile, re.MULTILINE))
    named = set(re.findall(r"\bmake ((?:run|test|setup|lint|bench)[a-z0-9-]*)", PAGES[0].read_text("utf-8")))
    assert named - targets == set()
    assert targets - named <= {"help", "bench"}


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    taken = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").partition("## Refused")[0].lower()
    names = {re.split(r"[<>=]", one)[0].lower() for one in asked}
    assert {name for name in names if name not in taken} == set()
