"""Killed at any moment and run again, a run ends with the bytes and numbers of one that was left alone."""

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from tests.tiny_run import ENVIRONMENT, write_recipe

KILLS = 20
REACHED = re.compile(r"\[\d+/\d+\] (\S+): (started|from the store)")
COMMAND = [sys.executable, "-c", "from quantflow.cli import main; main()", "run", "tiny.yaml"]


def _take_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(folder: Path, prepare: Callable[[], object] = _take_interrupts) -> subprocess.Popen[str]:
    return subprocess.Popen(
        COMMAND,
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # Tests in the background of a shell inherit that Ctrl-C is ignored; a person's command does not.
        preexec_fn=prepare,
    )


def finish(folder: Path) -> None:
    process = start(folder)
    _, log = process.communicate(timeout=300)
    assert process.returncode == 0, log


def wait_for(stage: str, log: IO[str]) -> bool:
    """Read the log until the stage is reached; whether it is being computed."""
    for line in log:
        found = REACHED.search(line)
        if found and found[1] == stage:
            return found[2] == "started"
    return False


def artifact_bytes(folder: Path) -> dict[str, bytes]:
    artifact = folder / "artifacts" / "tiny" / "int4"
    return {path.name: path.read_bytes() for path in sorted(artifact.iterdir())}


def results(folder: Path) -> dict[str, object]:
    newest = max(folder.glob("reports/tiny/*/report.json"), key=lambda path: path.stat().st_mtime_ns)
    report = json.loads(newest.read_text())
    return {key: report[key] for key in ("criteria", "artifacts", "baseline", "data", "events", "verdict")}


def stage_seconds(folder: Path) -> dict[str, float]:
    newest = next(folder.glob("reports/tiny/*/report.json"))
    stages = json.loads(newest.read_text())["provenance"]["stages"]
    return {stage["name"]: stage["seconds"] for stage in stages}


@pytest.mark.slow
def test_kill_9_at_twenty_moments_changes_nothing(tiny_llama: Path, tmp_path: Path) -> None:
    left_alone, killed = tmp_path / "left-alone", tmp_path / "killed"
    for folder in (left_alone, killed):
        write_recipe(folder, tiny_llama)
    finish(left_alone)
    seconds = stage_seconds(left_alone)
    choose = random.Random(0)
    hit: list[str] = []
    for number in range(KILLS):
        stage = list(seconds)[number * len(seconds) // KILLS]
        process = start(killed)
        assert process.stderr is not None
        if wait_for(stage, process.stderr):  # else it was finished between two kills
            # A resumable stage gets on from kill to kill: it must not be finished before its last one.
            time.sleep(choose.uniform(0, seconds[stage] * len(seconds) / KILLS))
            hit.append(stage)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        process.stderr.close()
    assert {"data", "baseline", "quantize", "measure:int4"} <= set(hit)
    finish(killed)
    assert artifact_bytes(killed) == artifact_bytes(left_alone)
    assert results(killed) == results(left_alone)
    assert not list((killed / ".quantflow" / "store" / "partial").iterdir())


@pytest.mark.slow
def test_kill_9_while_scoring_goes_on_after_the_last_piece(tiny_llama: Path, tmp_path: Path) -> None:
    """Pieces of ten positions; the process dies in the sixth of the artifact's measuring."""
    left_alone, killed = tmp_path / "left-alone", tmp_path / "killed"
    lines = {}
    for folder in (left_alone, killed):
        write_recipe(folder, tiny_llama)
        counted = folder / "pieces.txt"
        assert run_in_pieces(folder, 0, counted) == 0
        counted.unlink()
        for kind in ("measure", "gate"):
            shutil.rmtree(folder / ".quantflow" / "store" / kind)
        if folder == killed:
            assert run_in_pieces(folder, 6, counted) == -signal.SIGKILL
            assert len(counted.read_text().splitlines()) == 5
        assert run_in_pieces(folder, 0, counted) == 0
        lines[folder] = len(counted.read_text().splitlines())
    assert lines[killed] == lines[left_alone] > 10
    assert results(killed) == results(left_alone)


def run_in_pieces(folder: Path, die_in: int, counted: Path) -> int:
    code = f"from tests import faults; faults.die_at_piece({die_in}, {str(counted)!r}); "
    command = [sys.executable, "-c", code + COMMAND[2], *COMMAND[3:]]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, timeout=300).returncode


def test_a_run_that_is_shielded_from_its_terminal_outlives_it(tiny_llama: Path, tmp_path: Path) -> None:
    """As with nohup: a signal that is ignored from the start stays so."""
    write_recipe(tmp_path, tiny_llama)
    process = start(tmp_path, lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert process.stderr is not None
    assert wait_for("data", process.stderr)
    process.send_signal(signal.SIGHUP)
    assert wait_for("baseline", process.stderr)
    process.kill()
    process.communicate()


@pytest.mark.parametrize("command", ["plan", "doctor"])
def test_other_commands_end_without_a_traceback(tiny_llama: Path, tmp_path: Path, command: str) -> None:
    write_recipe(tmp_path, tiny_llama)
    code = f"from tests import faults; faults.interrupt_at_open('.'); {COMMAND[2]}"
    done = subprocess.run(
        [sys.executable, "-c", code, command, *COMMAND[4:] * (command == "plan")],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        preexec_fn=_take_interrupts,
    )
    assert done.returncode == 2
    assert done.stderr == "quantflow: interrupted\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_with_exit_code_2_and_the_run_goes_on_from_there(
    tiny_llama: Path, tmp_path: Path, number: signal.Signals
) -> None:
    write_recipe(tmp_path, tiny_llama)
    process = start(tmp_path)
    assert process.stderr is not None
    assert wait_for("quantize", process.stderr)
    process.send_signal(number)
    log = process.stderr.read()
    assert process.wait(60) == 2
    assert "Go on with: quantflow run tiny.yaml" in log
    assert "Traceback" not in log
    process = start(tmp_path)
    _, log = process.communicate(timeout=300)
    assert process.returncode == 0
    assert log.count(": from the store") == 6  # source, check, inspect, data, baseline, noise
