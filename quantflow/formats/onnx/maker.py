"""A program that makes a graph: run by itself, offline, in an empty folder, and told in plain words.

It holds the model in memory, prints, writes caches and may die; none of that is to happen to the run.
"""

import errno
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quantflow.errors import ArtifactError, QuantizationError
from quantflow.formats.onnx.params import GRAPH_FILE
from quantflow.pipeline.code import ROOT

# A model of 70 billion parameters from a slow disk, with room.
TIMEOUT = 6 * 3600.0
_LAST_LINES, _WIDTH = 6, 300
FULL = ("No space left on device", "Disk quota exceeded")
"""What programs say, in whatever sentence, where the disk takes no more."""


@dataclass(frozen=True)
class Maker:
    """A program that makes a graph.

    Attributes:
        name: What messages call it.
        module: The module that `python -m` runs.
        refuses: Words of its own in what it says where it does not take a model's architecture.
        hint: What the user can do about a failure of its own.
    """

    name: str
    module: str
    refuses: str
    hint: str = ""


def run_maker(maker: Maker, arguments: Sequence[str], checkpoint: Path, folder: Path, work: Path) -> None:
    """Run it until the graph is there.

    Args:
        maker: The program.
        arguments: What it is called with.
        checkpoint: The model's folder, for messages.
        folder: Where model.onnx is to be.
        work: An empty folder for what it writes besides, and what it says.

    Raises:
        QuantizationError: It does not take the model.
        ArtifactError: It dies or leaves no graph.
        OSError: The disk is full.
    """
    cache, clean, log = work / "cache", work / "clean", work / "maker.log"
    clean.mkdir()  # its working directory comes first on the path: what lies there could be imported
    paths = [str(ROOT.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HOME": str(cache),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    with log.open("wb") as file:
        try:
            ended = subprocess.run(
                [sys.executable, "-m", maker.module, *arguments],
                cwd=clean,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as cause:
            raise ArtifactError(
                f"{maker.name} did not finish within {TIMEOUT / 3600:.0f} hours", where=str(checkpoint)
            ) from cause
    said = log.read_text(encoding="utf-8", errors="replace")
    if ended.returncode or not (folder / GRAPH_FILE).is_file():
        raise _explained(maker, said, ended.returncode, checkpoint)


def _explained(maker: Maker, said: str, code: int, checkpoint: Path) -> Exception:
    if any(words in said for words in FULL):
        return OSError(errno.ENOSPC, FULL[0])
    lines = [line.strip()[:_WIDTH] for line in said.splitlines() if line.strip()]
    if maker.refuses in said:
        why = next(line for line in reversed(lines) if maker.refuses in line)
        return QuantizationError(
            f"{maker.name} does not take this model: {why}", where=str(checkpoint), hint=maker.hint
        )
    if code == -9:
        return ArtifactError(
            f"{maker.name} was killed, as the system does where memory runs out",
            where=str(checkpoint),
            hint="It holds the model in float32 (float16 for a GPU); give the machine more memory.",
        )
    last = " | ".join(lines[-_LAST_LINES:]) or "it said nothing"
    return ArtifactError(f"{maker.name} failed: {last}", where=str(checkpoint), hint=maker.hint)
