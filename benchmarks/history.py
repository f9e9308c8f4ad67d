"""How fast the history answers, with many runs in it, and how fast a report is rendered.

    python benchmarks/history.py [--runs 10000]

Puts copies of an invented report into a history made for this, under names and times of their own, and prints
one JSON object as the last line: seconds of the queries behind `quantflow history` (medians of several), of
recording one more run, and of the whole command in a process of its own, Python's start included.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from quantflow.gate.verdict import Verdict
from quantflow.history.after_run import looked_back, record_run
from quantflow.history.database import opened
from quantflow.history.entries import latest, put
from quantflow.report.html import render_html
from quantflow.report.model import Report
from tests.report.samples import PROVENANCE, report

REPEATS = 7
RECIPES = 20


def main() -> None:
    """Fill, ask, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10_000)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / ".quantflow"
        with opened(workspace) as connection:
            for number in range(runs):
                put(connection, _run(number), f"reports/x/{number}")

        def last() -> None:
            with opened(workspace) as connection:
                latest(connection, limit=50)

        def everything() -> None:
            with opened(workspace) as connection:
                latest(connection)

        command = [sys.executable, "-c", "from quantflow.cli import main; main()", "history"]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        timed = {
            "last_50_seconds": _median(last),
            "all_seconds": _median(everything),
            "look_back_seconds": _median(lambda: looked_back(workspace, "recipe-3", {})),
            "record_seconds": _median(lambda: record_run(workspace, _run(1), Path(folder) / "reports")),
            "command_seconds": _median(
                lambda: subprocess.run(
                    command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL
                )
            ),
            "render_seconds": _median(lambda: render_html(report(Verdict.PASS, Verdict.FAIL))),
        }
    print(json.dumps({"benchmark": "history", "runs": runs, **timed}))


def _run(number: int) -> Report:
    started = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=5 * number)
    made = report(
        Verdict.PASS,
        Verdict.PASS,
        run_id=f"run-{number:06}",
        provenance=PROVENANCE | {"started": started.isoformat(), "seconds": 100.0},
    )
    return made.model_copy(update={"recipe": f"recipe-{number % RECIPES}"})


def _median(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return round(statistics.median(taken), 4)


if __name__ == "__main__":
    main()
