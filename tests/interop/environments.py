"""Environments of the programs that artifacts are made for: each by itself, kept in the user's cache folder.

Their requirements exclude one another and QuantFlow's, so none of them is a dependency. The first use of a
peer makes its environment, which takes minutes; `python -m tests.interop.environments NAME` makes it by hand.
"""

import fcntl
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TORCH = "torch==2.13.0"
STAMP = "quantflow-peer.txt"
"""In a finished environment, with what was installed into it."""


class PeerError(Exception):
    """An environment cannot be made; the message has the installer's last words."""


@dataclass(frozen=True)
class Peer:
    """A program and how it is installed.

    Attributes:
        name: Of its environment.
        steps: Arguments of `pip install`, one call after another.
    """

    name: str
    steps: tuple[tuple[str, ...], ...]


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "interop-gptqmodel",
            (
                # torch before all else, or another build of it is pulled in.
                (TORCH,),
                ("transformers==5.17.0", "accelerate==1.15.0", "setuptools", "wheel", "ninja"),
                # Its build imports the torch of the environment it is made for.
                ("--no-build-isolation", TORCH, "gptqmodel==7.6.0"),
            ),
        ),
        Peer(
            "interop-oracles",
            (
                (TORCH,),
                ("transformers==5.17.0", "numpy"),
                # What they depend on excludes everything else here; two of their modules are used alone.
                ("--no-deps", "--only-binary", ":all:", "autoawq==0.2.7.post3", "auto-gptq==0.7.1"),
            ),
        ),
        Peer(
            "interop-onnxruntime-genai",
            (
                (TORCH,),
                ("transformers==5.17.0", "onnx==1.23.2", "onnx-ir==1.1.0"),
                (TORCH, "onnxruntime==1.32.0", "onnxruntime-genai==0.18.0"),
            ),
        ),
        # The next two are what benchmarks/int4.py compares QuantFlow with, besides gptqmodel.
        Peer(
            "llmcompressor",
            ((TORCH,), (TORCH, "transformers==5.17.0", "accelerate==1.15.0", "llmcompressor==0.14.0")),
        ),
        Peer(
            "autoround",
            ((TORCH,), (TORCH, "transformers==5.17.0", "accelerate==1.15.0", "auto-round==0.16.1")),
        ),
    )
}


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment, which is made if it is not there.

    Args:
        name: One of `PEERS`.

    Raises:
        PeerError: It cannot be made.
    """
    peer = PEERS[name]
    folder = cache_folder() / peer.name
    folder.mkdir(parents=True, exist_ok=True)
    python, stamp = folder / "bin" / "python", folder / STAMP
    wanted = "\n".join(" ".join(step) for step in peer.steps) + "\n"
    with _locked(folder.with_suffix(".lock")):
        if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
            stamp.unlink(missing_ok=True)
            venv.create(folder, clear=True, with_pip=True)
            for step in peer.steps:
                _install(python, step)
            stamp.write_text(wanted, encoding="utf-8")
    return python


def cache_folder() -> Path:
    """Where the environments are, outside the checkout."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "quantflow" / "peers"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time make an environment."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(python: Path, arguments: Sequence[str]) -> None:
    command = [str(python), "-m", "pip", "install", "--no-input", "--progress-bar", "off", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise PeerError(f"pip install {' '.join(arguments)} failed:\n{last}")


if __name__ == "__main__":
    for peer_name in sys.argv[1:] or PEERS:
        print(peer_name, python_of(peer_name))
