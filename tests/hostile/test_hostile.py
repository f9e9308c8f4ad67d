"""Every broken or hostile input is refused in our words, with its exit code, before any work goes into it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile import data, recipes, sources
from tests.hostile.ground import Case, Ground
from tests.hostile.page import explained
from tests.test_run import Command

SECTIONS = {"The recipe": recipes.CASES, "The model": sources.CASES, "The text": data.CASES}
CASES = {case.name: (section, case) for section, cases in SECTIONS.items() for case in cases}
# What only begins after source, check, inspection and data have found nothing.
HEAVY = ("baseline", "quantize", "assemble", "measure")
# A message that is longer hides what it says.
LONGEST = 3000


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all, so that the sound model is read once."""
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture
def command(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    yield Command(workspace, capsys, monkeypatch)


@pytest.fixture
def ground(tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    """What runs, in a place from which no hub and no package index are reached."""
    (tmp_path / "packages").mkdir()
    (tmp_path / "ground").mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "packages"))
    return Ground(tmp_path / "ground", tiny_llama, tmp_path / "packages")


def test_the_list_is_long_and_names_each_once() -> None:
    assert len(CASES) == sum(len(cases) for cases in SECTIONS.values()) >= 100


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_with_message_place_and_exit_code_before_work_begins(
    name: str, command: Command, ground: Ground
) -> None:
    section, case = CASES[name]
    complaint = complaint_about(case, command, ground)
    assert case.message in complaint
    place = case.where if case.where.startswith("data.") else str(ground.folder / case.where)
    assert place in complaint or not case.where
    assert "\n  " in complaint  # what to do about it
    assert len(complaint) < LONGEST
    assert explained(section, complaint), f"docs/troubleshooting.md does not know:\n{complaint}"


def complaint_about(case: Case, command: Command, ground: Ground) -> str:
    """Run the command and hold it to what is true of all cases; returns what it said."""
    made = case.spoil(ground)
    arguments = made if isinstance(made, tuple) else ("run", str(ground.recipe), "--quiet")
    assert command(*arguments) == case.code, command.err  # it looks for traces, too
    assert not [kind for kind in HEAVY if (command.folder / ".quantflow" / "store" / kind).exists()]
    assert sorted(path.name for path in ground.folder.parent.iterdir() if path.name == "evil") == []
    _, begun, complaint = command.err.partition("quantflow: ")
    assert begun
    return complaint
