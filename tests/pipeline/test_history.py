"""A run's record is true at every moment: while it runs, after any end, and after it was killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from quantflow.errors import DataError, StoreError
from quantflow.gate.verdict import Verdict
from quantflow.pipeline.history import RunHistory, RunRecord

RECIPE = Path("/recipes/r.yaml")
OTHER_RUN = """
import sys, time
from pathlib import Path
from quantflow.pipeline.history import RunHistory
with RunHistory(Path(sys.argv[1])).recorded("other", "r", Path("r.yaml")) as record:
    record.uses(["a" * 64])
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def history(tmp_path: Path) -> RunHistory:
    (tmp_path / ".quantflow").mkdir()
    return RunHistory(tmp_path / ".quantflow")


def only(history: RunHistory) -> RunRecord:
    (record,) = history.all()
    return record


def start_other_run(history: RunHistory) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER_RUN, str(history.workspace)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_run_is_seen_while_it_runs_and_afterwards(history: RunHistory) -> None:
    with history.recorded("id", "r", RECIPE) as record:
        assert only(history).status == "running"
        assert only(history).pid == os.getpid()
        record.finish(Verdict.PASS, 0, "All pass.", history.workspace.parent / "reports" / "r" / "id")
    ended = only(history)
    assert (ended.status, ended.verdict, ended.exit_code) == ("finished", Verdict.PASS, 0)
    assert ended.report == "reports/r/id"
    assert ended.seconds is not None
    assert not list(history.workspace.glob("runs/*.lock"))


def test_an_error_is_recorded_with_what_it_says(history: RunHistory) -> None:
    with pytest.raises(DataError), history.recorded("id", "r", RECIPE):
        raise DataError("no text", where="data.files")
    assert (only(history).status, only(history).exit_code) == ("failed", 2)
    assert only(history).reason == "data.files: no text"


def test_a_crash_of_ours_is_recorded_by_its_name(history: RunHistory) -> None:
    with pytest.raises(ZeroDivisionError), history.recorded("id", "r", RECIPE):
        raise ZeroDivisionError("division by zero")
    assert only(history).reason == "ZeroDivisionError: division by zero"


def test_an_interrupt_is_recorded(history: RunHistory) -> None:
    with pytest.raises(KeyboardInterrupt), history.recorded("id", "r", RECIPE):
        raise KeyboardInterrupt
    assert only(history).status == "interrupted"


def test_a_killed_run_shows_as_died_and_a_living_one_does_not(history: RunHistory) -> None:
    process = start_other_run(history)
    try:
        assert only(history).status == "running"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert only(history).status == "died"
    # What is stored stays as the run left it.
    stored = json.loads((history.workspace / "runs" / "other.json").read_text())
    assert stored["status"] == "running"


def test_objects_of_living_runs_are_named_to_a_cleaning_and_those_of_dead_ones_are_not(
    history: RunHistory,
) -> None:
    process = start_other_run(history)
    try:
        with history.cleaning() as used:
            assert used == {"a" * 64}
    finally:
        process.kill()
        process.wait()
    with history.cleaning() as used:
        assert used == frozenset()


def test_runs_are_listed_oldest_first_and_a_broken_record_is_left_out(history: RunHistory) -> None:
    for name, day in (("b", 2), ("a", 3), ("c", 1)):
        history.workspace.joinpath("runs").mkdir(exist_ok=True)
        history.write(
            RunRecord(
                run_id=name,
                recipe="r",
                recipe_path="r.yaml",
                status="finished",
                started=f"2026-11-0{day}T00:00:00+00:00",
                pid=1,
                host="h",
            )
        )
    (history.workspace / "runs" / "broken.json").write_text("{")
    assert [record.run_id for record in history.all()] == ["c", "b", "a"]


def test_a_disk_that_is_full_at_the_end_does_not_hide_the_runs_own_error(
    history: RunHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError), history.recorded("id", "r", RECIPE):

        def full(*args: object, **kwargs: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "write_text", full)
        raise DataError("no text")


def test_a_workspace_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / ".quantflow").write_text("a file")
    with (
        pytest.raises(StoreError, match="cannot be written"),
        RunHistory(tmp_path / ".quantflow").recorded("id", "r", RECIPE),
    ):
        pass
