"""Makes the environments of the tools that QuantFlow is measured against, each one for itself.

    python benchmarks/peers/environments.py [NAME …]

Their libraries cannot live together, nor with QuantFlow's. An environment lies in
`${XDG_CACHE_HOME:-~/.cache}/quantflow/peers/NAME`, outside the checkout, and is kept: a second call finds it
ready. Versions are pinned in NAME.txt beside this file. pip is the user's own, so that its indexes, mirrors
and caches hold; set TORCH_INDEX_URL to take torch from another index, such as that of its CPU builds.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
STAMP = ".quantflow-ready"
LOG = "setup.log"
SHOWN_LINES = 15
"""Of pip's output when it fails: where it says why."""

TORCH = ("torch==2.13.0",)
"""First and alone, so that nothing pulls another build of it."""

Steps = Sequence[Sequence[str]]
"""What `pip install` is given, call by call."""

ENVIRONMENTS: Mapping[str, Steps] = {
    "llmcompressor": (TORCH, ("llmcompressor==0.14.0", "transformers==5.17.0")),
    # gptqmodel's build reads the torch that is installed.
    "gptqmodel": (
        TORCH,
        ("setuptools", "wheel", "ninja", "numpy"),
        ("--no-build-isolation", "gptqmodel==7.6.0", "transformers==5.17.0"),
    ),
    "autoround": (TORCH, ("auto-round==0.16.1", "transformers==5.17.0")),
}


class EnvironmentFailed(Exception):
    """pip, or Python itself, could not make an environment; says which, where, and pip's own last words."""


def home(name: str) -> Path:
    """Where an environment lies, or is to lie."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "quantflow" / "peers" / name


def ensure(name: str, say: Callable[[str], None] = print) -> Path:
    """Make an environment unless it is ready, and give its Python.

    Args:
        name: One of `ENVIRONMENTS`.
        say: Told of every step that takes long.

    Raises:
        EnvironmentFailed: It cannot be made.
    """
    folder, steps, pins = home(name), ENVIRONMENTS[name], HERE / f"{name}.txt"
    python = folder / "bin" / "python"
    wanted = _fingerprint(steps, pins)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_suffix(".lock")):
        stamp = folder / STAMP
        if stamp.is_file() and stamp.read_text() == wanted and _runs(python):
            return python
        started = time.monotonic()
        if not _runs(python):
            say(f"{name}: making {folder} …")
            shutil.rmtree(folder, ignore_errors=True)
            _call([sys.executable, "-m", "venv", str(folder)], name, folder)
        for step in steps:
            say(f"{name}: installing {' '.join(step)} …")
            command = [str(python), "-m", "pip", "install", "--no-input", "--progress-bar", "off", *step]
            index = os.environ.get("TORCH_INDEX_URL")
            if step is TORCH and index:
                command += ["--index-url", index]
            if pins.is_file():
                command += ["--constraint", str(pins)]
            _call(command, name, folder)
        stamp.write_text(wanted)
        say(f"{name}: ready after {time.monotonic() - started:.0f} s")
    return python


def _fingerprint(steps: Steps, pins: Path) -> str:
    digest = hashlib.sha256(repr((steps, sys.version_info[:2])).encode())
    digest.update(pins.read_bytes() if pins.is_file() else b"")
    return digest.hexdigest()


def _runs(python: Path) -> bool:
    """Whether it is there and still works: it breaks when the Python that it was made with goes."""
    if not python.exists():
        return False
    return subprocess.run([str(python), "-c", ""], capture_output=True, check=False).returncode == 0


def _call(command: list[str], name: str, folder: Path) -> None:
    log = folder.with_name(f"{name}.{LOG}")
    with log.open("w") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        last = log.read_text(errors="replace").splitlines()[-SHOWN_LINES:]
        raise EnvironmentFailed("\n".join([f"{name}: {' '.join(command)} failed ({log}):", *last]))


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep a second call from working on the same environment; it waits."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Make the environments named, by default all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ENVIRONMENTS))
    names = parser.parse_args().names or list(ENVIRONMENTS)
    if unknown := sorted(set(names) - set(ENVIRONMENTS)):
        parser.error(f"{', '.join(unknown)} is none of {', '.join(ENVIRONMENTS)}")
    failed = False
    for name in names:
        try:
            print(f"{name}: {ensure(name)}", flush=True)
        except EnvironmentFailed as error:
            failed = True
            print(error, file=sys.stderr, flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
