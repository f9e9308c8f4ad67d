"""`quantflow scan`: which units cannot bear quantization, and what sparing them would cost."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quantflow.pipeline.deadline import parse_duration
from quantflow.pipeline.scanning import scan_recipe
from quantflow.pipeline.terminal import terminal_for
from quantflow.plan.size import readable
from quantflow.recipe.load import load_recipe
from quantflow.sensitivity.record import ScanRecord, UnitScore

# Wide enough for the table where no terminal says how wide it is.
LOG_WIDTH = 140
SHOWN = 20
"""Units that are shown unless all are asked for: what is chosen among is hardly ever further down."""


def scan(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key, as for `run`."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array of the scans.")] = False,
    all_units: Annotated[
        bool, typer.Option("--all", help=f"Show all units, not only the {SHOWN} most sensitive ones.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    time_limit: Annotated[
        str | None,
        typer.Option("--time-limit", metavar="TIME", help="Stop after 90s, 30m, 6h or 1d, resumable."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Scan even where memory or disk seem not to be enough.")
    ] = False,
) -> int:
    """Score every unit of the model in the precisions of the recipe's artifacts. No artifact is written.

    Exit codes: 0 scanned, 2 error or incomplete, 4 recipe or usage invalid.
    """
    result = scan_recipe(
        load_recipe(recipe, tuple(overrides or ())),
        terminal=terminal_for(quiet=quiet),
        time_limit=parse_duration(time_limit) if time_limit else None,
        force=force,
    )
    if as_json:
        print(json.dumps([record.model_dump(mode="json") for record in result.records], indent=2))
    for record in () if as_json else result.records:
        show(record, None if all_units else SHOWN)
    return 0


def show(record: ScanRecord, most: int | None) -> None:
    """Print a scan, the most sensitive units first.

    Args:
        record: The scan.
        most: How many units are shown of each precision; None for all.
    """
    console = Console(highlight=False, width=None if sys.stdout.isatty() else LOG_WIDTH)
    for precision in record.precisions:
        ranked = sorted(record.of(precision), key=lambda score: -score.kl)
        console.print(_table(precision, ranked, most))
        if most is not None and len(ranked) > most:
            console.print(f"  and {len(ranked) - most} more, with {_share(ranked[most:], ranked)} (--all)")
    for line in _summary(record):
        console.print(line, markup=False, soft_wrap=True)


def _table(precision: str, ranked: list[UnitScore], most: int | None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=f"Units by what {precision} costs in each alone")
    table.add_column("unit", no_wrap=True)
    for heading in (
        "KL, nats/token",
        "90 %",
        "on selection text",
        "found by",
        "of the weights",
        "to spare it",
    ):
        table.add_column(heading, justify="right")
    weights = sum(score.weights for score in ranked)
    for score in ranked[:most]:
        table.add_row(
            escape(score.unit),
            f"{score.kl:.3g}",
            _interval(score.ci_low, score.ci_high),
            "–" if score.kl_selection is None else f"{score.kl_selection:.3g}",
            score.method,
            f"{score.weights / weights:.2%}",
            f"+{readable(score.bytes_source - score.bytes_quantized)}",
        )
    return table


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{low:.3g} … {high:.3g}"


def _share(some: list[UnitScore], ranked: list[UnitScore]) -> str:
    whole = sum(score.kl for score in ranked)
    return f"{sum(score.kl for score in some) / whole:.1%} of the sum" if whole else "no KL at all"


def _summary(record: ScanRecord) -> list[str]:
    lines = [
        f"Cost: {record.forwards:.1f} forwards over {record.tokens} calibration tokens"
        + (
            f", {record.selection_forwards:.1f} over {record.selection_tokens} selection tokens."
            if record.selection_tokens
            else "."
        )
    ]
    controls = record.controls
    for what, found in (
        ("Rank correlation of the two halves of the text", controls.halves_rank_correlation),
        ("Rank correlation of calibration and selection text", controls.selection_rank_correlation),
        ("Rank correlation with the default method", controls.default_rank_correlation),
    ):
        values = ", ".join(f"{value:.2f} ({p})" for p, value in found.items() if value is not None)
        if values:
            lines.append(f"{what}: {values}.")
    lines.append(f"Control: with nothing swapped, KL {controls.nothing_swapped_kl:.1g} nats/token.")
    return lines
