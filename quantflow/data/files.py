"""Data files as streams of bytes, compressed or not, with what can go wrong in words."""

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import IO, Any, cast

import pyarrow as pa

from quantflow.data.names import Compression, Format, compression_of_name, format_of_name
from quantflow.data.params import FilesParams
from quantflow.errors import DataError
from quantflow.pipeline.storage import remedy

_MAGIC: dict[Compression, bytes] = {
    "gz": b"\x1f\x8b",
    "bz2": b"BZh",
    "xz": b"\xfd7zXZ\x00",
    "zst": b"\x28\xb5\x2f\xfd",
    "zip": b"PK\x03\x04",
}
_PARQUET_MAGIC = b"PAR1"
_BUFFER = 1 << 20
_FORMAT_HINT = "Set data.format to jsonl, json, txt, csv or parquet, or rename it."


@dataclass(frozen=True)
class DataFile:
    """One file of documents.

    Attributes:
        path: The file on disk.
        format: What it holds.
        compression: How it is compressed; empty where it is not.
        slice: Slice of documents that name none.
        begins_at: Where on disk its bytes begin: 0, unless it is in an archive.
        ends_at: Where on disk its bytes end: the size, unless it is in an archive.
        member: Its name in a zip archive; empty where it is not in one.
    """

    path: Path
    format: Format
    compression: Compression
    slice: str
    begins_at: int
    ends_at: int
    member: str = ""

    @property
    def shown(self) -> str:
        """How messages name it."""
        return f"{self.path}/{self.member}" if self.member else str(self.path)

    @property
    def name(self) -> str:
        """Its name without any folder."""
        return PurePath(self.member or self.path).name


def find_files(params: FilesParams) -> list[DataFile]:
    """Tell each file's format and compression, and look into archives.

    Raises:
        DataError: A file cannot be opened, is not what its name says, or its name says nothing.
    """
    found: list[DataFile] = []
    for name, part in zip(params.files, params.slices, strict=True):
        path = Path(name)
        with explained(name), path.open("rb") as stream:
            head, size = stream.read(8), path.stat().st_size
        compression = compression_of_name(name)
        _check_head(path, compression, head)
        if compression == "zip":
            found += _members(path, params, part)
        else:
            kind = _format(path.name, name, params)
            found.append(DataFile(path, kind, compression, part, 0, size))
            _check_parquet(found[-1], head)
    return found


@contextmanager
def open_bytes(file: DataFile) -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
    """Open a file for reading from the beginning, decompressed as it is read.

    Yields:
        The stream, and a function that says how many bytes of the file on disk have been read.
    """
    with file.path.open("rb", buffering=_BUFFER) as raw, _decompressed(file, raw) as stream:
        yield stream, raw.tell


@contextmanager
def explained(where: str, line: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Turn what reading can raise into a `DataError`.

    Args:
        where: How the message names the file.
        line: The last line that could be read.
    """
    try:
        yield
    except (
        EOFError,
        zlib.error,
        lzma.LZMAError,
        zipfile.BadZipFile,
        RuntimeError,
        NotImplementedError,
    ) as error:
        raise _damaged(where, line(), error) from error
    except UnicodeError as error:
        raise DataError(
            f"the file is not in the encoding it is read with: {error}",
            where=f"{where}:{line() + 1}",
            hint="Set data.encoding to what it is.",
        ) from error
    except OSError as error:
        if error.errno is None:  # how gzip, bz2 and pyarrow say that the content is wrong
            raise _damaged(where, line(), error) from error
        raise DataError(
            f"the file cannot be read: {error.strerror}",
            where=where,
            hint=remedy(error) or "Check data.files in the recipe.",
        ) from error


def _damaged(where: str, line: int, error: Exception) -> DataError:
    words = str(error) or type(error).__name__
    cut = isinstance(error, EOFError) or "truncated" in words.lower()
    what = "the file is cut short" if cut else f"the file is damaged: {words}"
    return DataError(
        what,
        where=f"{where}:{line}" if line else where,
        hint="Copy or download it again; nothing after this line can be read." if line else "Copy it again.",
    )


@contextmanager
def _decompressed(file: DataFile, raw: IO[bytes]) -> Iterator[IO[bytes]]:
    opened: Any
    if file.compression == "gz":
        opened = gzip.GzipFile(fileobj=raw)
    elif file.compression == "bz2":
        opened = bz2.BZ2File(raw)
    elif file.compression == "xz":
        opened = lzma.LZMAFile(raw)  # noqa: SIM115 (closed by the reader around it)
    elif file.compression == "zst":
        opened = _Zstandard(raw)
    elif file.compression == "zip":
        with zipfile.ZipFile(raw) as archive, archive.open(file.member) as member:
            yield cast(IO[bytes], io.BufferedReader(member, _BUFFER))
        return
    else:
        yield raw
        return
    with io.BufferedReader(opened, _BUFFER) as buffered:
        yield buffered


class _Zstandard(io.RawIOBase):
    """Zstandard through pyarrow, which reads files of several frames and notices a cut."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _check_head(path: Path, compression: Compression, head: bytes) -> None:
    if compression and head and not head.startswith(_MAGIC[compression]):
        raise DataError(
            f"the name ends in .{compression}, but the content is not that",
            where=str(path),
            hint="Rename it to what it is.",
        )
    if compression and not head:
        raise DataError(
            "the file is empty, not even a compressed one",
            where=str(path),
            hint="Copy it again, or leave it out.",
        )
    # bz2 begins with letters, and so may a text; the others begin with bytes that no text has.
    hidden = [name for name, magic in _MAGIC.items() if name != "bz2" and head.startswith(magic)]
    if not compression and hidden:
        raise DataError(
            f"this is a .{hidden[0]} file by its content, but its name does not say so",
            where=str(path),
            hint=f"Rename it to {path.name}.{hidden[0]}.",
        )


def _check_parquet(file: DataFile, head: bytes) -> None:
    if file.format == "parquet" and (file.compression or file.member):
        raise DataError(
            "a Parquet file cannot be read inside another compression",
            where=file.shown,
            hint="Unpack it: Parquet compresses its columns itself.",
        )
    if file.format != "parquet" and head == _PARQUET_MAGIC + head[4:] and head[4:5] < b" ":
        raise DataError(
            "this is a Parquet file by its content, but its name does not say so",
            where=file.shown,
            hint="Set data.format to parquet, or rename it.",
        )


def _format(name: str, shown: str, params: FilesParams) -> Format:
    if params.reading.format != "auto":
        return params.reading.format
    kind = format_of_name(name)
    if kind is None:
        raise DataError("the file's name does not say what it holds", where=shown, hint=_FORMAT_HINT)
    return kind


def _members(path: Path, params: FilesParams, part: str) -> list[DataFile]:
    with explained(str(path)), zipfile.ZipFile(path) as archive:
        entries = sorted(archive.infolist(), key=lambda entry: entry.filename)
    found: list[DataFile] = []
    for entry in entries:
        name = PurePath(entry.filename).name
        if entry.is_dir() or name.startswith(".") or entry.filename.startswith("__MACOSX/"):
            continue
        where = f"{path}/{entry.filename}"
        if entry.flag_bits & 1:
            raise DataError("the archive is encrypted", where=where, hint="Unpack it.")
        kind, end = _format(name, where, params), entry.header_offset + entry.compress_size
        file = DataFile(path, kind, "zip", part, entry.header_offset, end, entry.filename)
        _check_parquet(file, b"")
        if compression_of_name(name):
            raise DataError("a compressed file inside an archive is not read", where=where, hint="Unpack it.")
        found.append(file)
    if not found:
        raise DataError("the archive holds no file", where=str(path), hint="Leave it out.")
    return found


def total_bytes(files: Sequence[DataFile]) -> int:
    """Bytes on disk of all files."""
    return sum(file.ends_at - file.begins_at for file in files)
