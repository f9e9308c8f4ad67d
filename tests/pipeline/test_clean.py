"""Cleaning removes what was not used for long, and never what something that stays, or runs, needs."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import JsonValue

from quantflow.errors import StoreError
from quantflow.pipeline.clean import Cleaning, clean, sweep
from quantflow.pipeline.history import RunHistory
from quantflow.pipeline.publish import publish
from quantflow.pipeline.store import MANIFEST, Store

DAY = 86_400.0
SIZE = 100_000


class Shelf:
    """A workspace with objects of a given size and age."""

    def __init__(self, root: Path) -> None:
        self.workspace = root / ".quantflow"
        self.store = Store(self.workspace / "store")

    def put(self, name: str, *, days: float, inputs: Sequence[str] = ()) -> Path:
        key = name * 64
        (self.store.begin(key, resume=False).output / "content.bin").write_bytes(b"x" * SIZE)
        made: dict[str, JsonValue] = {
            "inputs": {f"role{number}": other * 64 for number, other in enumerate(inputs)}
        }
        folder = self.store.commit("kind", key, made, (), time.monotonic()).folder
        self.age(folder / MANIFEST, days)
        return folder

    def begin(self, name: str, *, days: float) -> Path:
        folder = self.store.begin(name * 64, resume=False).folder
        (folder / "half.bin").write_bytes(b"x" * SIZE)
        self.age(folder / "half.bin", days)
        self.age(folder, days)
        return folder

    def age(self, path: Path, days: float) -> None:
        then = time.time() - days * DAY
        os.utime(path, (then, then))

    def clean(self, **options: object) -> Cleaning:
        return clean(self.workspace, **options)  # type: ignore[arg-type]

    def names(self) -> str:
        return "".join(sorted(folder.name[0] for folder, _ in self.store.objects()))


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def removed(done: Cleaning) -> str:
    return "".join(item.key[0] for item in done.removed)


def test_what_is_older_than_asked_goes_and_the_rest_stays(shelf: Shelf) -> None:
    shelf.put("a", days=40)
    shelf.put("b", days=20)
    done = shelf.clean(older_than=30 * DAY)
    assert (removed(done), shelf.names()) == ("a", "b")
    assert done.freed_bytes == pytest.approx(SIZE, rel=0.05)
    assert not list((shelf.workspace / "store" / "partial").iterdir())


def test_the_least_recently_used_goes_until_the_size_is_met(shelf: Shelf) -> None:
    for name, days in (("a", 1), ("b", 3), ("c", 2)):
        shelf.put(name, days=days)
    done = shelf.clean(keep=SIZE * 2 + 10_000)
    assert (removed(done), shelf.names()) == ("b", "ac")
    assert done.kept_bytes <= SIZE * 2 + 10_000


def test_use_counts_and_not_age(shelf: Shelf) -> None:
    shelf.put("a", days=40)
    shelf.put("b", days=20)
    stored = shelf.store.find("kind", "a" * 64)
    assert stored is not None
    shelf.store.used(stored)
    assert removed(shelf.clean(older_than=10 * DAY)) == "b"


def test_inputs_of_what_stays_stay(shelf: Shelf) -> None:
    shelf.put("a", days=40)
    shelf.put("b", days=40, inputs=["a"])
    shelf.put("c", days=1, inputs=["b"])
    done = shelf.clean(older_than=30 * DAY)
    assert (removed(done), done.needed) == ("", 2)


def test_inputs_go_after_what_was_made_from_them(shelf: Shelf) -> None:
    shelf.put("a", days=50)
    shelf.put("b", days=45, inputs=["a"])
    shelf.put("c", days=40, inputs=["b"])
    assert removed(shelf.clean(keep=0)) == "cba"


def test_what_dead_runs_left_goes_first(shelf: Shelf) -> None:
    shelf.put("a", days=40)
    shelf.begin("b", days=1)
    done = shelf.clean(keep=SIZE + 10_000)
    assert [item.kind for item in done.removed] == ["unfinished"]
    assert shelf.names() == "a"


def test_what_a_dead_run_left_lately_is_not_too_old(shelf: Shelf) -> None:
    folder = shelf.begin("b", days=1)
    shelf.clean(older_than=30 * DAY)
    assert folder.exists()


def test_an_object_without_its_manifest_is_of_no_use(shelf: Shelf) -> None:
    folder = shelf.put("a", days=40)
    shelf.put("b", days=50)
    (folder / MANIFEST).unlink()
    assert [item.kind for item in shelf.clean(keep=SIZE + 10_000).removed] == ["damaged"]


def test_what_a_running_run_has_named_stays(shelf: Shelf) -> None:
    shelf.put("a", days=40)
    shelf.put("b", days=40)
    with RunHistory(shelf.workspace).recorded("id", "r", Path("r.yaml")) as record:
        record.uses(["a" * 64])
        done = shelf.clean(keep=0)
    assert (removed(done), done.in_use) == ("b", 1)
    assert removed(shelf.clean(keep=0)) == "a"


def test_what_is_being_computed_stays(shelf: Shelf) -> None:
    folder = shelf.begin("a", days=40)
    with shelf.store.lock("a" * 64, lambda holder: None):
        assert shelf.clean(keep=0).in_use == 1
    assert folder.exists()
    shelf.clean(keep=0)
    assert not folder.exists()


def test_a_dry_run_says_the_same_and_removes_nothing(shelf: Shelf) -> None:
    shelf.put("a", days=50)
    shelf.put("b", days=45, inputs=["a"])
    told = shelf.clean(keep=0, dry_run=True)
    assert shelf.names() == "ab"
    done = shelf.clean(keep=0)
    assert told.removed == done.removed
    assert told.dry_run
    assert shelf.names() == ""


def test_files_that_an_artifact_shares_free_nothing(shelf: Shelf, tmp_path: Path) -> None:
    folder = shelf.put("a", days=40)
    publish(folder, tmp_path / "artifacts" / "r" / "int4")
    done = shelf.clean(keep=0)
    assert done.shared_bytes > SIZE
    assert done.freed_bytes < 10_000
    assert (tmp_path / "artifacts" / "r" / "int4" / "content.bin").stat().st_size == SIZE


def test_a_store_that_cannot_be_written_is_named(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.put("a", days=40)

    def refuse(self: Path, target: Path) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StoreError, match="Read-only"):
        shelf.clean(keep=0)


def test_a_run_sweeps_what_nobody_took_up_again(shelf: Shelf) -> None:
    old, new = shelf.begin("a", days=15), shelf.begin("b", days=13)
    stored = shelf.put("c", days=400)
    (gone,) = sweep(shelf.workspace)
    assert (gone.kind, gone.key, gone.freed_bytes) == ("unfinished", "a" * 64, SIZE)
    assert not old.exists()
    assert new.exists()
    assert stored.exists()


def test_what_a_running_run_has_named_is_not_swept(shelf: Shelf) -> None:
    old = shelf.begin("a", days=400)
    with RunHistory(shelf.workspace).recorded("id", "r", Path("r.yaml")) as record:
        record.uses(["a" * 64])
        assert sweep(shelf.workspace) == ()
    assert old.exists()
    with shelf.store.lock("a" * 64, lambda holder: None):
        assert sweep(shelf.workspace) == ()
    assert old.exists()


def test_locks_go_with_what_they_were_for(shelf: Shelf) -> None:
    shelf.put("a", days=40)
    shelf.begin("b", days=40)
    shelf.clean(keep=0)
    assert not list((shelf.workspace / "store" / "locks").iterdir())
