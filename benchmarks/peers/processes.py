"""Runs one tool in a process of its own, with an eye on its memory and a limit on its time."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

SAMPLE_SECONDS = 0.2
"""How often the memory of a process and its children is looked at: the peak of one process the kernel keeps,
that of several together nobody does."""
DID_NOT_FINISH = "did not finish"
HANGING = 20
"""Times the limit of processor seconds that may pass on the clock, for a process that waits for ever."""
SHOWN_LINES = 12
"""Of a failed tool's output: where it says why."""


@dataclass(frozen=True)
class Taken:
    """What a tool took.

    Attributes:
        seconds: Wall time from before loading the model to after saving the artifact.
        cpu_seconds: Processor time between the same moments.
        peak_bytes: Largest memory of the process and its children together, mapped files included.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class NotFinished:
    """Why there is no figure.

    Attributes:
        status: `did not finish` within the limit, or `failed`.
        why: The limit, or the end of what the tool printed.
    """

    status: str
    why: str


def run(
    command: Sequence[str], log: Path, limit: float, environment: Mapping[str, str]
) -> Taken | NotFinished:
    """Run a worker of this folder to its end.

    Args:
        command: The worker; `clock.measured` prints the last line of its output.
        log: Where its output goes.
        limit: Processor seconds after which it is stopped with all its children. On a machine left alone one
            thread's processor seconds are seconds; on a shared one the clock says nothing of a tool.
        environment: Added to this process's own.
    """
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            process_group=0,
            cwd=log.parent,  # GPTQModel writes logs wherever it is
            env=os.environ | environment,
        )
        try:
            peak = _watch(process, limit)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # its own group: its children are in it, we are not
                process.wait()
    if peak is None:
        return NotFinished(DID_NOT_FINISH, f"stopped after {limit:.0f} s of processor time")
    lines = log.read_text(errors="replace").splitlines()
    if process.returncode:
        return NotFinished("failed", "\n".join(lines[-SHOWN_LINES:]))
    taken = Taken(**json.loads(next(line for line in reversed(lines) if line.startswith('{"seconds"'))))
    return replace(taken, peak_bytes=max(taken.peak_bytes, peak))


def save_outcome(path: Path, outcome: Taken | NotFinished) -> None:
    """Keep what came of a run."""
    path.write_text(json.dumps(vars(outcome)) + "\n")


def load_outcome(path: Path) -> Taken | NotFinished:
    """Read what `save_outcome` wrote."""
    record = json.loads(path.read_text())
    return NotFinished(**record) if "status" in record else Taken(**record)


def _watch(process: subprocess.Popen[bytes], limit: float) -> int | None:
    """Wait for the end; the largest sum of resident memory seen, or None where time ran out."""
    peak, deadline = 0, time.monotonic() + HANGING * limit
    while process.poll() is None:
        tree = list(_tree(process.pid))
        if sum(map(_cpu_seconds, tree)) > limit or time.monotonic() > deadline:
            return None
        peak = max(peak, sum(map(_resident_bytes, tree)))
        time.sleep(SAMPLE_SECONDS)
    return peak


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task").glob("*/children")
        found = [int(child) for file in children for child in file.read_text().split()]
    except OSError:  # it ended while it was looked at
        return
    for child in found:
        yield from _tree(child)


def _cpu_seconds(pid: int) -> float:
    """Processor time of a process and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
