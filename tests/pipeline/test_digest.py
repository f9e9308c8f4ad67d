import os
import time
from pathlib import Path

import pytest

from quantflow.errors import StoreError
from quantflow.pipeline import digest
from quantflow.pipeline.digest import DigestCache, file_digest

LONG_AGO_NS = 10**18


def settled(path: Path, content: str) -> Path:
    path.write_text(content)
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))
    return path


def test_an_unchanged_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = settled(tmp_path / "a.txt", "hello")
    monkeypatch.setattr(time, "time_ns", lambda: 4 * 10**18)
    cache = DigestCache(tmp_path / "digests.json")
    first = cache.digest(path)
    cache.save()

    def unreadable(path: Path) -> str:
        raise AssertionError("read again")

    monkeypatch.setattr(digest, "file_digest", unreadable)
    assert DigestCache(tmp_path / "digests.json").digest(path) == first
    with pytest.raises(AssertionError):
        DigestCache(tmp_path / "digests.json", trust=False).digest(path)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = settled(tmp_path / "a.txt", "hello")
    cache = DigestCache(tmp_path / "digests.json")
    first = cache.digest(path)
    settled(path, "hallo")
    assert cache.digest(path) != first
    assert cache.digest(path) == file_digest(path)


def test_a_file_just_written_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("hello")
    cache = DigestCache(tmp_path / "digests.json")
    cache.digest(path)
    cache.save()
    assert (tmp_path / "digests.json").read_text() == "{}"


def test_a_broken_memory_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "digests.json").write_text("{")
    path = settled(tmp_path / "a.txt", "hello")
    assert DigestCache(tmp_path / "digests.json").digest(path) == file_digest(path)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="absent"):
        DigestCache(tmp_path / "digests.json").digest(tmp_path / "absent")


def test_verifying_reads_every_file_once_and_at_the_end_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settled(tmp_path / "a.txt", "hello")
    monkeypatch.setattr(time, "time_ns", lambda: 4 * 10**18)
    DigestCache(tmp_path / "digests.json").digest(path)
    reads: list[Path] = []

    def counted(path: Path) -> str:
        reads.append(path)
        return file_digest(path)

    monkeypatch.setattr(digest, "file_digest", counted)
    cache = DigestCache(tmp_path / "digests.json", trust=False)
    for _ in range(5):
        cache.digest(path)
    assert len(reads) == 1
    cache.distrust()
    cache.digest(path)
    assert len(reads) == 2
    assert cache.read == {path: 5}


@pytest.mark.parametrize("content", ["{", "[]", "5", '{"a.txt": 5}', '{"a.txt": ["x"]}', "[" * 100_000])
def test_a_memory_that_is_nonsense_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "digests.json").write_text(content)
    path = settled(tmp_path / "a.txt", "hello")
    assert DigestCache(tmp_path / "digests.json").digest(path) == file_digest(path)


def test_a_memory_that_cannot_be_written_costs_no_more_than_time(tmp_path: Path) -> None:
    (tmp_path / "digests.json").mkdir()
    path = settled(tmp_path / "a.txt", "hello")
    cache = DigestCache(tmp_path / "digests.json")
    cache.digest(path)
    cache.save()
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["a.txt"]
