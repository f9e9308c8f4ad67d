"""An error of a disk, a share or a permission becomes what, where and what to do; others stay as they are."""

import errno
import os
from pathlib import Path

import pytest

from quantflow.errors import DataError, StoreError
from quantflow.pipeline.storage import explained_storage, of_storage, storage_error, with_remedy


def system_error(code: int, name: str | None = None) -> OSError:
    return OSError(code, os.strerror(code), name)


@pytest.mark.parametrize(
    ("code", "what", "remedy"),
    [
        (errno.ENOSPC, "the disk is full: ", "Make room there"),
        (errno.EDQUOT, "the disk is full: ", "Make room there"),
        (errno.EFBIG, "the disk is full: ", "`ulimit -f`"),
        (errno.EROFS, "it may not be read or written: ", "Mend the permissions"),
        (errno.EACCES, "it may not be read or written: ", "Mend the permissions"),
        (errno.ESTALE, "the disk or network share does not answer: ", "See that it is there again"),
        (errno.EIO, "the disk or network share does not answer: ", "See that it is there again"),
        (errno.ENOENT, "it is not there any more: ", "Put it back"),
        (errno.ENOTDIR, "something else is in its place: ", "Move what is in its place away"),
        (errno.ENOLCK, "the file system cannot do what is needed here", "another file system"),
    ],
)
def test_it_says_what_where_and_what_to_do(tmp_path: Path, code: int, what: str, remedy: str) -> None:
    error = storage_error(system_error(code), tmp_path)
    assert error.message.startswith(what)
    assert os.strerror(code) in error.message
    assert error.where == str(tmp_path)
    assert error.hint.startswith("What is finished is kept. ")
    assert remedy in error.hint
    assert error.hint.endswith("give the same command again.")


def test_the_file_that_the_system_names_is_named(tmp_path: Path) -> None:
    assert storage_error(system_error(errno.EIO, "/data/x.jsonl"), tmp_path).where == "/data/x.jsonl"
    assert storage_error(system_error(errno.EIO, "x.jsonl"), tmp_path).where == f"{tmp_path}/x.jsonl"


def test_what_comes_from_storage_is_found_behind_a_stage_s_own_error() -> None:
    try:
        raise DataError("cannot be read") from system_error(errno.ESTALE)
    except DataError as error:
        found = of_storage(error)
        assert found is not None
        assert found.errno == errno.ESTALE
        assert with_remedy(error).hint.startswith("What is finished is kept. See that")
        assert isinstance(with_remedy(error), DataError)
    assert of_storage(DataError("nonsense")) is None


def test_what_libraries_in_rust_tell_in_words_is_understood() -> None:
    told = RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")
    found = of_storage(told)
    assert found is not None
    assert found.errno == errno.ENOSPC


def test_a_mistake_of_ours_is_no_error_of_storage(tmp_path: Path) -> None:
    assert of_storage(ValueError("no")) is None
    with pytest.raises(OSError, match="Invalid argument") as raised, explained_storage(tmp_path):
        raise system_error(errno.EINVAL)
    assert not isinstance(raised.value, StoreError)
    with pytest.raises(StoreError), explained_storage(tmp_path):
        raise system_error(errno.EROFS)
