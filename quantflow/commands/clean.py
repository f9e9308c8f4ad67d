"""`quantflow clean`: room in the workspace."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from quantflow.errors import RecipeError
from quantflow.pipeline.clean import Cleaning
from quantflow.pipeline.clean import clean as clean_workspace
from quantflow.pipeline.deadline import parse_duration
from quantflow.pipeline.store import WORKSPACE
from quantflow.plan.size import parse_size, readable


def clean(
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Remove what was last used before, e.g. 30d."),
    ] = None,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="SIZE", help="Keep the most recently used, e.g. 20GB.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> int:
    """Remove stored results, the least recently used first; never one that is in use.

    What dead runs left unfinished goes first. Artifacts and reports are not touched.
    """
    if older_than is None and keep is None:
        raise RecipeError(
            "nothing says what may go",
            where="quantflow clean",
            hint="Name an age, a size or both: --older-than 30d, --keep 20GB; --keep 0 removes all it may.",
        )
    done = clean_workspace(
        Path.cwd() / WORKSPACE,
        older_than=parse_duration(older_than, "--older-than") if older_than is not None else None,
        keep=parse_size(keep, "--keep") if keep is not None else None,
        dry_run=dry_run,
    )
    if as_json:
        print(done.model_dump_json(indent=2))
    else:
        _show(done)
    return 0


def _show(done: Cleaning) -> None:
    console = Console(highlight=False, soft_wrap=True)
    verb = "would remove" if done.dry_run else "removed"
    for item in done.removed:
        shared = f", {readable(item.shared_bytes)} shared" if item.shared_bytes else ""
        console.print(
            f"{verb} {item.kind} {item.key[:12]}  {readable(item.freed_bytes)}{shared}", markup=False
        )
    gain = "would free" if done.dry_run else "freed"
    console.print(
        f"{gain} {readable(done.freed_bytes)}, {done.kept} stored results stay, {readable(done.kept_bytes)}",
        markup=False,
    )
    if done.shared_bytes:
        console.print(
            f"{readable(done.shared_bytes)} more are files that other folders share, such as artifacts/ or "
            "the hub's cache: they take their space until they are deleted there, too."
        )
    if done.in_use:
        console.print(f"{done.in_use} are in use by a running run.")
    if done.needed:
        console.print(f"{done.needed} stay only because others that stay were made from them.")
