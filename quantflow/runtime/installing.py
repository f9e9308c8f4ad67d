"""Making an environment with the user's own pip, and saying in plain words why it cannot be made."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from quantflow.errors import RuntimeUnavailableError

# What the wheels are built for.
PYTHON_FROM, PYTHON_BELOW = (3, 11), (3, 15)
LOG = "install.log"
_SHOWN = ("Collecting ", "Downloading ", "Installing ", "Successfully ")
_LINES_SHOWN = 3
# User and password in the address of an index, which pip itself mostly hides.
_CREDENTIALS = re.compile(r"://[^/\s@]+@")
_NO_NETWORK = re.compile(
    r"name resolution|Name or service not known|NewConnectionError|Connection refused|ConnectTimeout"
    r"|Network is unreachable|ProxyError|Read timed out",
    re.IGNORECASE,
)
_NO_TORCH = re.compile(r"No matching distribution found for (torch==\S*\+\S*)")


def check_interpreter(version: tuple[int, ...] = tuple(sys.version_info[:2])) -> None:
    """Refuse a Python that the wheels are not built for.

    Raises:
        RuntimeUnavailableError: This process's Python is too old or too new.
    """
    if not PYTHON_FROM <= version < PYTHON_BELOW:
        found, first, below = (".".join(map(str, v)) for v in (version, PYTHON_FROM, PYTHON_BELOW))
        raise RuntimeUnavailableError(
            f"vLLM has wheels for Python {first} to below {below}, QuantFlow runs on {found}",
            hint="Install QuantFlow with one of these.",
        )


def check_room(folder: Path, room: int) -> None:
    """Refuse a disk that is too full.

    Args:
        folder: Where the environment is to be; need not exist.
        room: Bytes that making it takes.

    Raises:
        RuntimeUnavailableError: There is less.
    """
    there = next(path for path in (folder, *folder.parents) if path.exists())
    already = sum(p.lstat().st_size for p in folder.rglob("*") if not p.is_dir()) if folder.exists() else 0
    free = shutil.disk_usage(there).free
    if free + already < room:
        raise _no_room(folder, f"about {room / 1e9:.0f} GB are needed, {free / 1e9:.1f} GB are free")


def make_venv(folder: Path, say: Callable[[str], None]) -> None:
    """Make the empty environment; one that an interrupted installation left is kept.

    Raises:
        RuntimeUnavailableError: Python cannot make one here.
    """
    if _runs(folder / "bin" / "python", "import pip"):
        say("going on where an earlier installation stopped")
        return
    say(f"making an environment in {folder}")
    command = [sys.executable, "-m", "venv", "--clear", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        _raise_for(folder, result.stdout + result.stderr, "Python cannot make a virtual environment")


def install_packages(
    folder: Path,
    requirement: str,
    dropped: tuple[str, ...],
    say: Callable[[str], None],
    *,
    extra_index: str | None,
) -> dict[str, str]:
    """Install into an environment and drop what is not wanted of it.

    Args:
        folder: The environment.
        requirement: What pip is asked for.
        dropped: Packages to take away again.
        say: Told what pip does, a line at a time.
        extra_index: Another package index.

    Returns:
        Every package that is there now → its version.

    Raises:
        RuntimeUnavailableError: pip could not.
    """
    more = ["--extra-index-url", extra_index] if extra_index else []
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    # Wheels only: a package that would have to be compiled fails here in seconds instead of after an hour.
    _run(
        [*pip, "install", "--progress-bar", "off", "--only-binary", ":all:", *more, requirement], folder, say
    )
    if dropped:
        _run([*pip, "uninstall", "--yes", *dropped], folder, lambda line: None)
    listing = subprocess.run([*pip, "list", "--format", "json"], capture_output=True, text=True, check=False)
    return {package["name"].lower(): package["version"] for package in json.loads(listing.stdout)}


def _run(command: list[str], folder: Path, say: Callable[[str], None]) -> None:
    lines: list[str] = []
    with (
        (folder / LOG).open("a", encoding="utf-8") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(_CREDENTIALS.sub("://", line.strip()))
                log.write(lines[-1] + "\n")
                if lines[-1].startswith(_SHOWN):
                    say(lines[-1])
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        _raise_for(folder, "\n".join(lines), "pip could not install it")


def _raise_for(folder: Path, output: str, what: str) -> None:
    shown = _CREDENTIALS.sub("://", output)
    if "No space left on device" in shown:
        raise _no_room(folder, "the disk is full")
    if _NO_NETWORK.search(shown):
        raise RuntimeUnavailableError(
            "the package index cannot be reached",
            where=str(folder),
            hint="Check network, proxy and pip's configuration; the same command goes on where this stopped.",
        )
    if missing := _NO_TORCH.search(shown):
        raise RuntimeUnavailableError(
            f"the package index has no {missing[1]}",
            where=str(folder),
            hint="PyTorch serves its CPU builds from an index of its own: name it with --extra-index, or set "
            "it in pip's configuration.",
        )
    if "ensurepip is not" in shown or "No module named ensurepip" in shown:
        version = ".".join(map(str, sys.version_info[:2]))
        hint = f"On Debian and Ubuntu: sudo apt install python{version}-venv"
        raise RuntimeUnavailableError(what, where=str(folder), hint=hint)
    errors = [line for line in shown.splitlines() if line.startswith("ERROR")] or shown.splitlines()
    raise RuntimeUnavailableError(
        f"{what}: {' '.join(errors[-_LINES_SHOWN:]) or 'it gave no reason'}",
        where=str(folder),
        hint=f"All of pip's words are in {folder / LOG}.",
    )


def _no_room(folder: Path, why: str) -> RuntimeUnavailableError:
    return RuntimeUnavailableError(
        f"not enough room on the disk: {why}",
        where=str(folder),
        hint="Make room, or put the cache elsewhere with XDG_CACHE_HOME; the same command goes on.",
    )


def _runs(python: Path, code: str) -> bool:
    try:
        return subprocess.run([str(python), "-c", code], capture_output=True, check=False).returncode == 0
    except OSError:
        return False
