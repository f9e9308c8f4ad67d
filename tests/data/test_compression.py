"""Compressed files and archives read like what is in them, and say where they went wrong."""

import bz2
import gzip
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from quantflow.errors import DataError
from tests.data.reading import read, records, texts

LINES = [{"text": f"document number {i}", "slice": "ab"[i % 2], "id": f"d{i}"} for i in range(200)]
JSONL = "".join(json.dumps(line) + "\n" for line in LINES).encode()


def zstandard(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard,
}


@pytest.mark.parametrize("ending", COMPRESSORS)
def test_a_compressed_file_reads_like_the_file_itself(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"orders.jsonl.{ending}"
    path.write_bytes(COMPRESSORS[ending](JSONL[:5000]) + COMPRESSORS[ending](JSONL[5000:]))  # two streams
    found = records(read(path))
    assert [r.content for r in found] == [line["text"] for line in LINES]
    assert [r.slice for r in found][:2] == ["a", "b"]
    assert found[7].where == f"{path}:8"


def test_bytes_of_a_compressed_file_are_reported_as_they_are_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl.gz"
    path.write_bytes(gzip.compress(JSONL * 50))
    done: list[int] = []
    read(path, advance=done.append)
    assert sum(done) == path.stat().st_size


@pytest.mark.parametrize("ending", COMPRESSORS)
def test_a_compressed_file_that_is_cut_is_an_error_at_the_last_line_it_gives(
    tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"orders.jsonl.{ending}"
    noise = [{"text": f"{i * 7919 % 104729:x} {i * i:x}" * 5} for i in range(60_000)]
    whole = COMPRESSORS[ending]("".join(json.dumps(line) + "\n" for line in noise).encode())
    path.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(DataError, match="is cut short") as caught:
        read(path, encoding="utf-8")
    assert caught.value.where.startswith(f"{path}")
    with pytest.raises(DataError, match="is cut short"):
        read(path)


@pytest.mark.parametrize("ending", COMPRESSORS)
def test_a_damaged_compressed_file_is_an_error(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"orders.jsonl.{ending}"
    whole = bytearray(COMPRESSORS[ending](JSONL))
    whole[len(whole) // 2 : len(whole) // 2 + 40] = bytes(40)
    path.write_bytes(whole)
    with pytest.raises(DataError, match=r"damaged|cut short|not valid"):
        records(read(path))
        raise DataError("not valid: it was read")


@pytest.mark.parametrize("ending", [*COMPRESSORS, "zip"])
def test_a_name_that_promises_a_compression_that_is_not_there_is_an_error(
    tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"orders.jsonl.{ending}"
    path.write_bytes(JSONL)
    with pytest.raises(DataError, match=f"ends in .{ending}, but the content is not that"):
        read(path)


def test_a_compressed_file_whose_name_does_not_say_so_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_bytes(gzip.compress(JSONL))
    with pytest.raises(DataError, match=r"this is a \.gz file by its content") as caught:
        read(path)
    assert "orders.jsonl.gz" in caught.value.hint


def test_every_file_in_a_zip_archive_is_read(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tickets/b.jsonl", '{"text": "two"}\n')
        archive.writestr("tickets/a.csv", "text\none\n")
        archive.writestr("__MACOSX/tickets/._a.csv", "nonsense")
        archive.writestr(".DS_Store", "nonsense")
    done: list[int] = []
    found = records(read(path, advance=done.append))
    assert [r.content for r in found] == ["one", "two"]
    assert {r.slice for r in found} == {"export"}
    assert found[1].where == f"{path}/tickets/b.jsonl:1"
    assert 0 < sum(done) <= path.stat().st_size


def test_an_archive_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    broken, empty, nested = tmp_path / "broken.zip", tmp_path / "empty.zip", tmp_path / "nested.zip"
    broken.write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(DataError, match="damaged"):
        read(broken)
    with zipfile.ZipFile(empty, "w") as archive:
        archive.mkdir("nothing")
    with pytest.raises(DataError, match="holds no file"):
        read(empty)
    with zipfile.ZipFile(nested, "w") as archive:
        archive.writestr("a.jsonl.gz", gzip.compress(JSONL))
    with pytest.raises(DataError, match="compressed file inside an archive"):
        read(nested)


def test_a_name_that_says_nothing_needs_a_format(tmp_path: Path) -> None:
    path = tmp_path / "wiki.raw"
    path.write_text("one\n\ntwo\n")
    with pytest.raises(DataError, match="does not say what it holds") as caught:
        read(path)
    assert "data.format" in caught.value.hint
    assert texts(path, format="txt", documents="paragraph") == ["one", "two"]
