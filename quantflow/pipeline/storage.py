"""What disks, shares and permissions do to a run, in words that say what happened, where, and what to do."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quantflow.errors import QuantFlowError, StoreError

KEPT = "What is finished is kept."
_RUST = re.compile(r"\(os error (\d+)\)")
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_REFUSED = frozenset((errno.EROFS, errno.EACCES, errno.EPERM))
# The last four are how a network file system says that its server is away.
_GONE = frozenset((errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENODEV))
# A file where a folder should be, or the other way round.
_IN_THE_WAY = frozenset((errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY))
# Some network file systems have no locks.
_UNABLE = frozenset((errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP))
STORAGE_ERRORS = _FULL | _REFUSED | _GONE | _IN_THE_WAY | _UNABLE | {errno.ENOENT}
"""What an OSError of the surroundings has for its number; any other is a mistake of ours."""


def of_storage(error: BaseException) -> OSError | None:
    """The error of a disk, a share or a permission that `error` is or comes from, if it is one."""
    seen: BaseException | None = error
    while seen is not None:
        found = seen if isinstance(seen, OSError) else _of_rust(seen)
        if found is not None and found.errno in STORAGE_ERRORS:
            return found
        seen = seen.__cause__
    return None


def _of_rust(error: BaseException) -> OSError | None:
    """The error of the system that safetensors and tokenizers tell of in their own exceptions' text."""
    told = _RUST.search(str(error))
    return OSError(int(told[1]), os.strerror(int(told[1]))) if told else None


def storage_error(error: OSError, place: Path | str, kept: str = KEPT) -> StoreError:
    """An error of storage as a user reads it.

    Args:
        error: As the system gave it; it names a file only where one was opened, not where one was written to.
        place: Where it happened, as far as is known otherwise.
        kept: What became of the work so far.
    """
    where = str(Path(place) / _name(error))  # an absolute name stands for itself
    if error.errno in _FULL:
        what = "the disk is full"
    elif error.errno in _REFUSED:
        what = "it may not be read or written"
    elif error.errno in _GONE:
        what = "the disk or network share does not answer"
    elif error.errno in _UNABLE:
        what = "the file system cannot do what is needed here, such as lock a file"
    elif error.errno in _IN_THE_WAY:
        what = "something else is in its place"
    else:
        what = "it is not there any more"
    return StoreError(f"{what}: {error.strerror}", where=where, hint=f"{kept} {remedy(error)}".strip())


def remedy(error: OSError) -> str:
    """What a user can do about an error of storage; empty for any other."""
    if error.errno == errno.EFBIG:
        way = "Raise the limit on the size of files (`ulimit -f`)"
    elif error.errno in _FULL:
        way = "Make room there (`quantflow clean` removes stored results)"
    elif error.errno in _REFUSED:
        way = "Mend the permissions, or run where you may write,"
    elif error.errno in _GONE:
        way = "See that it is there again"
    elif error.errno in _IN_THE_WAY:
        way = "Move what is in its place away"
    elif error.errno == errno.ENOENT:
        way = "Put it back"
    elif error.errno in _UNABLE:
        way = "Change to a folder on another file system"
    else:
        return ""
    return f"{way} and give the same command again."


def with_remedy(error: QuantFlowError) -> QuantFlowError:
    """The same error, with what to do where it has no hint and comes from one of storage."""
    cause = of_storage(error)
    if cause is None or error.hint:
        return error
    return type(error)(error.message, where=error.where, hint=f"{KEPT} {remedy(cause)}")


@contextmanager
def explained_storage(place: Path | str, kept: str = KEPT) -> Iterator[None]:
    """Turn errors of storage inside into a `StoreError`; others pass.

    Args:
        place: Where it happens, for errors that do not name a file.
        kept: What became of the work so far.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in STORAGE_ERRORS:
            raise
        raise storage_error(error, place, kept) from error


def _name(error: OSError) -> str:
    return os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else ""
