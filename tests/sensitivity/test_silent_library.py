"""A solver's own words do not get among what a command prints."""

import subprocess
import sys

SCRIPT = """
import ctypes, sys
from quantflow.sensitivity.silent_library import silent_library
library = ctypes.CDLL(None)
print("before")
with silent_library():
    library.puts(b"of the library")
    try:
        with silent_library():
            raise ValueError
    except ValueError:
        pass
print("after")
"""


def test_what_a_library_prints_is_thrown_away_and_nothing_else() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["before", "after"]
    told = SCRIPT.replace("with silent_library():", "if True:")
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert "of the library" in done.stdout
