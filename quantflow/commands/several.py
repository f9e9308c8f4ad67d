"""Running several recipes: what `quantflow run A B …` and `quantflow nightly DIR` have in common."""

import secrets
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from quantflow.pipeline.run import RunResult
from quantflow.pipeline.several import run_each, worst
from quantflow.pipeline.terminal import duration
from quantflow.report.batch import Batch, write_batch
from quantflow.report.model import Report
from quantflow.report.terminal import STYLES, verdict_line


def run_all(
    recipes: Sequence[Path],
    run: Callable[[Path, float | None], RunResult],
    time_limit: float | None,
    *,
    as_json: bool,
    quiet: bool,
) -> int:
    """Run recipes one after another, write the summary page, and return the worst exit code.

    Args:
        recipes: Recipe files.
        run: Loads and runs one within so many seconds.
        time_limit: Seconds for all of them together; None for no limit.
        as_json: Print summary.json.
        quiet: Print no progress.
    """
    began = datetime.now(UTC)
    reports: dict[str, Report] = {}

    def run_one(path: Path, seconds: float | None) -> RunResult:
        if not quiet:
            print(f"== {path} ({len(done) + 1} of {len(recipes)})", file=sys.stderr, flush=True)
        done.append(path)
        result = run(path, seconds)
        reports[result.report.run_id] = result.report
        if not as_json:
            Console(highlight=False).print(verdict_line(result.report), soft_wrap=True)
        return result

    done: list[Path] = []
    outcomes = run_each(recipes, run_one, time_limit)
    batch = Batch(
        batch_id=f"{began:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
        started=began.isoformat(timespec="seconds"),
        exit_code=worst([outcome.exit_code for outcome in outcomes]),
        outcomes=outcomes,
    )
    page = write_batch(batch, reports, Path.cwd())
    if as_json:
        print(batch.model_dump_json(indent=2))
    else:
        _show(batch, page)
    return batch.exit_code


def _show(batch: Batch, page: Path) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("recipe", "verdict", "exit code", "took", "why"):
        table.add_column(heading, overflow="fold")
    for outcome in batch.outcomes:
        table.add_row(
            escape(outcome.recipe),
            Text(outcome.verdict.value, style=STYLES[outcome.verdict]),
            str(outcome.exit_code),
            duration(outcome.seconds),
            escape(outcome.reason.partition("\n")[0]),
        )
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    console.print(table)
    shown = page.relative_to(Path.cwd()) if page.is_relative_to(Path.cwd()) else page
    console.print(f"Exit code {batch.exit_code}. Summary: {shown}", markup=False, soft_wrap=True)
