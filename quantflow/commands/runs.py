"""`quantflow runs`: what was run here, with which outcome."""

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quantflow.pipeline.history import RunHistory, RunRecord
from quantflow.pipeline.store import WORKSPACE
from quantflow.pipeline.terminal import duration


def runs(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> int:
    """List the runs of this folder, the oldest first."""
    records = RunHistory(Path.cwd() / WORKSPACE).all()
    if as_json:
        print(json.dumps([record.model_dump(mode="json", exclude={"keys"}) for record in records], indent=2))
    elif not records:
        print("No runs in this folder yet.")
    else:
        _show(records)
    return 0


def _show(records: tuple[RunRecord, ...]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("run", "recipe", "outcome", "computed", "started", "took", "report"):
        table.add_column(heading, overflow="fold")
    for record in records:
        table.add_row(
            record.run_id,
            escape(record.recipe),
            outcome(record),
            escape(computed(record)),
            f"{datetime.fromisoformat(record.started).astimezone():%Y-%m-%d %H:%M}",
            duration(record.seconds) if record.seconds is not None else "–",
            escape(_report(record)),
        )
    Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(table)


def outcome(record: RunRecord) -> str:
    """The verdict, or what became of a run without one."""
    if record.status == "finished" and record.verdict is not None:
        return record.verdict.value
    if record.status == "running":
        return f"running (process {record.pid} on {record.host})"
    return record.status


def computed(record: RunRecord) -> str:
    """Where it computed and what it calibrated in."""
    return ", ".join(filter(None, (record.device, record.calibration_dtype))) or "–"


def _report(record: RunRecord) -> str:
    if record.report is None:
        return record.reason.partition("\n")[0] or "–"
    page = Path(record.report) / "report.html"
    return str(page) if (Path.cwd() / page).is_file() else f"{record.report} (removed)"
