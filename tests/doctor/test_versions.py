"""Conflicts are found as `pip check` finds them, and the tested versions travel with the package."""

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from quantflow.doctor import versions
from quantflow.doctor.versions import (
    different_from_tested,
    find_conflicts,
    library_findings,
    pinned_versions,
)


class Installed:
    """A set of distributions: name → (version, requirements)."""

    def __init__(self, **packages: tuple[str, list[str]]) -> None:
        self.packages = packages

    def distribution(self, name: str) -> object:
        if name not in self.packages:
            raise PackageNotFoundError(name)
        version, requires = self.packages[name]
        return type("Distribution", (), {"version": version, "requires": requires})()


def install(monkeypatch: pytest.MonkeyPatch, **packages: tuple[str, list[str]]) -> None:
    monkeypatch.setattr(versions, "distribution", Installed(**packages).distribution)


def conflicts() -> list[str]:
    return list(find_conflicts("app"))


def test_a_sound_set_has_no_conflicts(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, app=("1", ["lib>=2"]), lib=("2.1", []))
    assert conflicts() == []


def test_a_missing_library_is_named_with_who_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, app=("1", ["lib>=2"]), lib=("2.1", ["deep>3"]))
    assert conflicts() == ["lib needs deep>3, which is not installed. Run `make setup`."]


def test_a_version_that_does_not_suit_is_named_with_what_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, app=("1", ["lib<2"]), lib=("2.1", []))
    assert conflicts() == ["app needs lib<2, installed is 2.1. Run `make setup`."]


def test_markers_and_extras_count(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = ["a; python_version < '3'", "b; extra == 'dev'", "lib[fast]"]
    install(monkeypatch, app=("1", needs), lib=("1", ["c; extra == 'fast'", "d; extra == 'slow'"]))
    assert conflicts() == ['lib needs c; extra == "fast", which is not installed. Run `make setup`.']


def test_a_circle_of_requirements_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, app=("1", ["lib"]), lib=("1", ["app"]))
    assert conflicts() == []


def test_the_shipped_versions_are_those_of_the_repository() -> None:
    root = Path(__file__).resolve().parents[2]
    shipped = root / "quantflow" / "doctor" / "constraints.txt"
    assert shipped.read_text() == (root / "constraints.txt").read_text()
    tested = pinned_versions()
    assert {"torch", "transformers", "numpy"} <= tested.keys()
    assert "pytest" not in tested


def test_another_version_than_the_tested_is_worth_a_note_and_another_build_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(versions, "pinned_versions", lambda: {"torch": "2.13.0", "numpy": "2.4.6"})
    install(monkeypatch, quantflow=("1", []), torch=("2.13.0+cpu", []), numpy=("2.5.0", []))
    assert different_from_tested() == [("numpy", "2.5.0", "2.4.6")]
    levels = [finding.level for finding in library_findings()]
    assert levels == ["fine", "fine", "note"]


def test_this_environment_is_sound() -> None:
    assert list(find_conflicts("quantflow")) == []
