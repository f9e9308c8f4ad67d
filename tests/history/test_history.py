"""The history keeps what reports say, of many runs and under several jobs."""

import json
import multiprocessing
import sqlite3
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from quantflow.errors import StoreError
from quantflow.gate.verdict import Verdict
from quantflow.history import database
from quantflow.history.after_run import TREND_RUNS, looked_back, record_run
from quantflow.history.database import HISTORY_FILE, opened
from quantflow.history.entries import decisions_on, latest, put, put_decision
from quantflow.report.decision import Decision
from quantflow.report.model import Report
from quantflow.report.write import write_report
from tests.report.samples import PROVENANCE, artifact, report
from tests.tiny_run import ENVIRONMENT


def night(number: int, *verdicts: Verdict) -> Report:
    provenance = PROVENANCE | {"started": f"2026-11-{number:02}T02:00:00+00:00", "seconds": 10.0 * number}
    verdicts = verdicts or (Verdict.PASS, Verdict.PASS)
    made = (artifact(Verdict.PASS, digest=f"{number:064x}"),)
    return report(*verdicts, run_id=f"night-{number:02}", provenance=provenance, artifacts=made)


def recorded(workspace: Path, *reports: Report) -> None:
    for found in reports:
        record_run(workspace, found, workspace.parent / "reports" / found.recipe / found.run_id)


def decision(**changes: object) -> Decision:
    parts = {
        "kind": "waiver",
        "run_id": "night-01",
        "recipe": "quickstart",
        "by": "Ada",
        "at": "2026-11-02T08:00:00+00:00",
        "reason": "a pilot with ten users",
        "digests": {"int4-awq": f"{1:064x}"},
        "criterion": "kl/kl_mean",
        "until": date(2026, 12, 31),
    }
    return Decision.model_validate(parts | changes)


def test_what_is_asked_for_is_what_reports_said(tmp_path: Path) -> None:
    workspace = tmp_path / ".quantflow"
    recorded(workspace, night(2, Verdict.PASS, Verdict.FAIL), night(1))
    with opened(workspace) as connection:
        first, second = latest(connection)
    assert (first.run_id, second.run_id) == ("night-01", "night-02")
    assert (second.verdict, second.exit_code, second.seconds) == ("fail", 1, 20.0)
    assert second.report == "reports/quickstart/night-02"
    made, said = second.artifacts[0], night(2).artifacts[0]
    assert said.measurements is not None and said.measurements.kl is not None
    assert made.kl_mean == said.measurements.kl.mean
    assert made.bytes == said.bytes
    assert made.perplexity_increase == night(2).criteria[0].delta


def test_runs_can_be_asked_for_by_recipe_time_and_number(tmp_path: Path) -> None:
    recorded(tmp_path, *map(night, range(1, 6)))
    with opened(tmp_path) as connection:
        assert [run.run_id for run in latest(connection, limit=2)] == ["night-04", "night-05"]
        assert [run.run_id for run in latest(connection, since="2026-11-05")] == ["night-05"]
        assert latest(connection, recipe="another") == ()


def test_a_run_recorded_twice_is_there_once(tmp_path: Path) -> None:
    recorded(tmp_path, night(1), night(1))
    with opened(tmp_path) as connection:
        assert len(latest(connection)) == 1
        assert connection.execute("SELECT count(*) FROM criteria").fetchone()[0] == 2


def test_nothing_of_a_transaction_that_fails_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), opened(tmp_path) as connection:
        put(connection, night(1), "reports/x")
        raise ZeroDivisionError
    with opened(tmp_path) as connection:
        assert latest(connection) == ()


def _many(workspace: Path, first: int) -> None:
    for number in range(first, first + 15):
        recorded(workspace, night(1).model_copy(update={"run_id": f"run-{number}"}))


def test_jobs_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    jobs = [context.Process(target=_many, args=(tmp_path, 15 * number)) for number in range(4)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0] * 4
    with opened(tmp_path) as connection:
        assert {run.run_id for run in latest(connection)} == {f"run-{n}" for n in range(60)}


def test_an_older_history_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(tmp_path, night(1))
    newer = (*database.MIGRATIONS, "ALTER TABLE runs ADD COLUMN note TEXT;")
    monkeypatch.setattr(database, "MIGRATIONS", newer)
    with opened(tmp_path) as connection:
        assert connection.execute("SELECT run_id, note FROM runs").fetchone()["run_id"] == "night-01"
    monkeypatch.undo()
    with pytest.raises(StoreError, match="version 2, this QuantFlow knows versions up to 1"):
        looked_back(tmp_path, "quickstart", {})


def test_a_damaged_history_is_said_and_can_be_rebuilt_from_reports(tmp_path: Path) -> None:
    workspace = tmp_path / ".quantflow"
    folder = tmp_path / "reports" / "quickstart" / "night-01"
    write_report(night(1).model_copy(update={"decisions": (decision(),)}), folder)
    workspace.mkdir()
    (workspace / HISTORY_FILE).write_bytes(b"no database" * 1000)
    command = [sys.executable, "-c", "from quantflow.cli import main; main()", "history", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "move it away" in done.stderr and "Traceback" not in done.stderr
    (workspace / HISTORY_FILE).unlink()
    done = subprocess.run(
        [*command, "--rebuild"], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert [run["run_id"] for run in json.loads(done.stdout)] == ["night-01"]
    with opened(workspace) as connection:
        assert decisions_on(connection, "quickstart") == (decision(),)


def test_a_report_looks_back_on_the_last_runs_and_on_decisions_about_its_very_bytes(tmp_path: Path) -> None:
    for number in range(TREND_RUNS + 5):
        recorded(tmp_path, night(1).model_copy(update={"run_id": f"run-{number:02}"}))
    with opened(tmp_path) as connection:
        put_decision(connection, decision())
        put_decision(connection, decision(at="2026-11-03T08:00:00+00:00", digests={"int4-awq": "other"}))
    decisions, trend = looked_back(tmp_path, "quickstart", {"int4-awq": f"{1:064x}"})
    assert decisions == (decision(),)
    assert [point.run_id for point in trend] == [f"run-{number:02}" for number in range(5, TREND_RUNS + 5)]


def test_without_a_history_there_is_nothing_to_look_back_on(tmp_path: Path) -> None:
    assert looked_back(tmp_path, "quickstart", {}) == ((), ())
    assert not (tmp_path / HISTORY_FILE).exists()


def test_the_history_is_readable_by_other_programs(tmp_path: Path) -> None:
    recorded(tmp_path, night(1))
    connection = sqlite3.connect(tmp_path / HISTORY_FILE)
    assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    connection.close()
