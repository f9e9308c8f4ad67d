"""`quantflow compare`: artifacts of runs side by side."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quantflow.compare.compare import Comparison, compare
from quantflow.errors import RecipeError
from quantflow.pipeline.store import WORKSPACE
from quantflow.report.figures import count, nats, percent, perplexity, size
from quantflow.report.read import find_report, load_report

METRICS = {"nll": "Loss", "kl": "KL"}


def compare_runs(
    runs: Annotated[
        list[str], typer.Argument(help="Run ids, `latest`, `latest:RECIPE`, or folders of reports.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> int:
    """Put artifacts of runs side by side, with paired differences where they saw the same documents."""
    reports = [load_report(find_report(run, Path.cwd())) for run in runs]
    if sum(len(report.artifacts) for report in reports) < 2:
        raise RecipeError(
            "there is one artifact only, which nothing can be compared with",
            where=runs[0],
            hint="Name another run.",
        )
    found = compare(reports, Path.cwd() / WORKSPACE)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        _show(found)
    return 0


def _show(found: Comparison) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    labels = [f"{chr(ord('A') + i)}" if i < 26 else str(i) for i in range(len(found.artifacts))]
    for label in labels:
        table.add_column(label, justify="right", overflow="fold")
    rows = {
        "run": [escape(a.run_id) for a in found.artifacts],
        "artifact": [escape(a.artifact) for a in found.artifacts],
        "format": [a.format for a in found.artifacts],
        "verdict": [a.verdict for a in found.artifacts],
        "size": [size(a.bytes) for a in found.artifacts],
        "perplexity": [perplexity(a.perplexity) for a in found.artifacts],
        "KL, mean": [nats(a.kl_mean) for a in found.artifacts],
        "same top token": [percent(a.top1_agreement) for a in found.artifacts],
    }
    for name, cells in rows.items():
        table.add_row(name, *cells)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    console.print(table)
    for pair in found.paired:
        first, second = labels[pair.first], labels[pair.second]
        sides = pair.ci_low > 0, pair.ci_high < 0
        verdict = (
            f"{first} is better" if sides[0] else f"{second} is better" if sides[1] else "no difference shown"
        )
        console.print(
            f"{METRICS[pair.metric]}, {second} − {first}: {pair.difference:+.4g} nats per token (90 % "
            f"interval {pair.ci_low:+.4g} to {pair.ci_high:+.4g}, {count(pair.documents)} documents): "
            f"{verdict}.",
            markup=False,
            soft_wrap=True,
        )
    for why in found.unpaired:
        console.print(f"Not paired: {why}.", markup=False, soft_wrap=True)
