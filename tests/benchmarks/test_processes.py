"""A tool runs in a process of its own, which cannot outlive its time."""

import os
import sys
import time
from pathlib import Path

import pytest

from benchmarks.peers.processes import NotFinished, Taken, load_outcome, run, save_outcome

WORKERS = Path(__file__).parents[2] / "benchmarks" / "peers"
CLOCKED = "from clock import measured\nwith measured():\n    {}\n"


def start(code: str, folder: Path, limit: float = 30) -> Taken | NotFinished:
    return run([sys.executable, "-c", code], folder / "log", limit, {"PYTHONPATH": str(WORKERS)})


def test_time_and_memory_are_those_of_what_is_clocked(tmp_path: Path) -> None:
    before = "import time\nwhile time.process_time() < 2: pass\n"
    taken = start(before + CLOCKED.format("held = bytearray(200_000_000); time.sleep(.5)"), tmp_path)
    assert isinstance(taken, Taken)
    assert taken.seconds >= 0.5
    assert taken.cpu_seconds < 1
    assert 200e6 < taken.peak_bytes < 300e6


def test_memory_of_children_counts(tmp_path: Path) -> None:
    child = "import time; held = bytearray(200_000_000); time.sleep(1.5)"
    code = "import subprocess, sys\n" + CLOCKED.format(f"subprocess.run([sys.executable, '-c', {child!r}])")
    taken = start(code, tmp_path)
    assert isinstance(taken, Taken)
    assert taken.peak_bytes > 200e6


def test_what_takes_too_long_is_stopped_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "child"
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'while True: pass'])\n"
        f"open({str(mark)!r}, 'w').write(str(child.pid))\nchild.wait()"
    )
    outcome = start(code, tmp_path, limit=1)
    assert outcome == NotFinished("did not finish", "stopped after 1 s of processor time")
    deadline = time.monotonic() + 5
    while _lives(int(mark.read_text())) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _lives(int(mark.read_text()))


def test_what_waits_for_ever_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.processes.HANGING", 1)
    outcome = start("import time; time.sleep(600)", tmp_path, limit=1)
    assert isinstance(outcome, NotFinished)
    assert outcome.status == "did not finish"


def test_the_end_of_a_failed_tools_output_says_why(tmp_path: Path) -> None:
    outcome = start("raise ValueError('no such kernel')", tmp_path)
    assert isinstance(outcome, NotFinished)
    assert outcome.status == "failed"
    assert outcome.why.endswith("ValueError: no such kernel")


@pytest.mark.parametrize("outcome", [Taken(1.5, 2.5, 7), NotFinished("did not finish", "stopped after 2 s")])
def test_outcomes_are_kept(tmp_path: Path, outcome: Taken | NotFinished) -> None:
    save_outcome(tmp_path / "outcome.json", outcome)
    assert load_outcome(tmp_path / "outcome.json") == outcome


def _lives(pid: int) -> bool:
    """Whether a process is there and no zombie, which waits for nothing but its parent's look."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
