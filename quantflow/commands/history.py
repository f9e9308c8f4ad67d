"""`quantflow history`: what came of the runs here, and where that changed."""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quantflow.errors import RecipeError
from quantflow.history.database import opened
from quantflow.history.entries import ArtifactEntry, RunEntry, latest, put
from quantflow.history.trend import changes
from quantflow.pipeline.deadline import parse_duration
from quantflow.pipeline.store import WORKSPACE
from quantflow.pipeline.terminal import duration
from quantflow.report.figures import nats, signed_percent, size
from quantflow.report.read import all_reports, load_report

SHOWN = 50
"""Runs in the table where nobody says how many: about a screen."""
TRACED: Mapping[str, Callable[[float], str]] = {
    "perplexity_increase": signed_percent,
    "kl_mean": nats,
    "bytes": lambda value: size(round(value)),
}
"""What is looked at for changes of level, with how it is shown."""


def history(
    recipe: Annotated[str | None, typer.Option("--recipe", help="Of this recipe only.")] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="Begun since a day (2026-11-01) or an age (30d)."),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--last", min=1, metavar="N", help=f"The last N runs. Default: {SHOWN} in the table, else all."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one line for each artifact.")] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="First put in every report that lies in reports/.")
    ] = False,
) -> int:
    """Show verdicts, measurements, sizes and times of runs, the oldest first, and where they changed."""
    if as_json and as_csv:
        raise RecipeError("one of --json and --csv is enough", where="quantflow history")
    moment = _moment(since) if since else None
    plain = not (as_json or as_csv)
    with opened(Path.cwd() / WORKSPACE) as connection:
        if rebuild:
            for folder in all_reports(Path.cwd()):
                put(connection, load_report(folder), str(folder.relative_to(Path.cwd())))
        runs = latest(connection, recipe=recipe, since=moment, limit=last or (SHOWN if plain else None))
    if as_json:
        print(json.dumps([run.model_dump(mode="json") for run in runs], indent=2))
    elif as_csv:
        _print_csv(runs)
    elif not runs:
        print(
            "No runs in the history yet."
            if recipe is None and since is None
            else "No such runs in the history."
        )
    else:
        _show(runs)
    return 0


def _moment(since: str) -> str:
    try:
        day = datetime.fromisoformat(since)
    except ValueError:
        return (datetime.now(UTC) - timedelta(seconds=parse_duration(since, "--since"))).isoformat()
    return (day if day.tzinfo else day.astimezone()).astimezone(UTC).isoformat()


COLUMNS = ("run_id", "recipe", "started", "seconds", "run_verdict", "exit_code", *ArtifactEntry.model_fields)


def _print_csv(runs: Sequence[RunEntry]) -> None:
    writer = csv.writer(sys.stdout)
    writer.writerow(COLUMNS)
    for run in runs:
        head = [run.run_id, run.recipe, run.started, run.seconds, run.verdict, run.exit_code]
        for artifact in run.artifacts:
            writer.writerow([*head, *(_cell(value) for value in artifact.model_dump().values())])
        if not run.artifacts:
            writer.writerow([*head, *("" for _ in ArtifactEntry.model_fields)])


def _cell(value: object) -> object:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@" else value


def _show(runs: Sequence[RunEntry]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("started", "recipe", "artifact", "verdict"):
        table.add_column(heading, overflow="fold")
    for heading in ("perplexity", "KL", "size", "took"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("run", no_wrap=True)
    for run in runs:
        began = f"{datetime.fromisoformat(run.started).astimezone():%Y-%m-%d %H:%M}" if run.started else "–"
        for artifact in run.artifacts:
            table.add_row(
                began,
                escape(run.recipe),
                escape(artifact.name),
                artifact.verdict,
                signed_percent(artifact.perplexity_increase),
                nats(artifact.kl_mean),
                size(artifact.bytes),
                "–" if run.seconds is None else duration(run.seconds),
                run.run_id,
            )
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    console.print(table)
    for line in _changed(runs):
        console.print(line, markup=False, soft_wrap=True)


def _changed(runs: Sequence[RunEntry]) -> Iterator[str]:
    """Where a figure of an artifact changed its level, a sentence each."""
    series: dict[tuple[str, str], list[tuple[RunEntry, ArtifactEntry]]] = {}
    for run in runs:
        for artifact in run.artifacts:
            series.setdefault((run.recipe, artifact.name), []).append((run, artifact))
    for (recipe, name), points in series.items():
        for figure, show in TRACED.items():
            known = [(run, getattr(a, figure)) for run, a in points if getattr(a, figure) is not None]
            for change in changes([value for _, value in known]):
                begun = known[change.at][0]
                yield _sentence(recipe, name, figure, begun, show(change.before), show(change.after))


def _sentence(recipe: str, name: str, figure: str, run: RunEntry, before: str, after: str) -> str:
    word = figure.replace("_", " ")
    day = run.started[:10]
    return f"{recipe}/{name}: {word} changed from {before} to {after} with run {run.run_id} ({day})."
