"""Keeps a C library's own words out of what a command prints."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silent_library() -> Iterator[None]:
    """Throw away what is written to the process's standard output, beneath Python.

    HiGHS prints a line of its own on some problems, however quiet it is asked to be; `--json` has to print
    nothing but the report.
    """
    library = ctypes.CDLL(None)
    library.fflush(None)
    try:
        kept = os.dup(1)
    except OSError:  # standard output is closed: nobody hears anything
        yield
        return
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        yield
    finally:
        library.fflush(None)  # what it has written is still in its buffer
        os.dup2(kept, 1)
        os.close(kept)
