"""`quantflow plan`: what a run would do and take."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quantflow.errors import FitError
from quantflow.pipeline.terminal import duration
from quantflow.plan.make import Plan, PlannedFacts, PlannedStage, make_plan
from quantflow.plan.size import readable
from quantflow.recipe.load import load_recipe

# Wide enough for the table where no terminal says how wide it is.
LOG_WIDTH = 140


def plan(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key, as for `run`."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> int:
    """Tell what a run would do and take: stages, time, memory and disk. Nothing is run or downloaded.

    Exit codes: 0 it fits as far as is known, 2 it cannot fit or cannot be planned, 4 recipe invalid.
    """
    made = make_plan(load_recipe(recipe, tuple(overrides or ())), say=partial(print, file=sys.stderr))
    if as_json:
        print(made.model_dump_json(indent=2))
    else:
        _show(made)
    return 0 if made.fit.fits else FitError.exit_code


def _show(made: Plan) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else LOG_WIDTH)
    console.print(f"Plan of [bold]{escape(made.recipe)}[/] on {escape(made.machine)}, {made.device}")
    console.print(
        f"  computing: {made.computing}; measurements in {made.computing.measuring_dtype}", markup=False
    )
    for line in _facts(made.facts):
        console.print(f"  {line}", markup=False)
    console.print(_table(made))
    for line in [*_summary(made), *made.notes]:
        console.print(line, markup=False)


def _table(made: Plan) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("stage", no_wrap=True)
    table.add_column("state", overflow="fold")
    for heading in ("time", "memory", "disk"):
        table.add_column(heading, justify="right", no_wrap=True)
    for stage in made.stages:
        if stage.cached:
            table.add_row(escape(stage.name), "[dim]in the store[/]", "–", "–", "–")
        else:
            begin = "goes on where it was interrupted: " if stage.resumes else "to run: "
            state = escape(begin + "; ".join(str(reason) for reason in stage.reasons))
            unknown = f"\n[yellow]unknown: {escape(stage.unknown)}[/]" if stage.unknown else ""
            table.add_row(escape(stage.name), state + unknown, _time(stage), *_sizes(stage))
    return table


def _time(stage: PlannedStage) -> str:
    if stage.seconds is None:
        return "unknown"
    return f"{'up to ' if stage.resumes else ''}{duration(stage.seconds)}"


def _sizes(stage: PlannedStage) -> tuple[str, str]:
    memory = "unknown" if stage.memory is None else readable(stage.memory)
    if stage.gpu_memory:
        memory += f" + {readable(stage.gpu_memory)} GPU"
    return memory, "unknown" if stage.disk is None else readable(stage.disk)


def _facts(facts: PlannedFacts) -> list[str]:
    lines = []
    if facts.parameters is not None:
        size = f", {readable(facts.weight_bytes)}" if facts.weight_bytes is not None else ""
        lines.append(
            f"model: {facts.model_type}, {_count(facts.parameters)} parameters"
            f"{f' in {facts.dtype}' if facts.dtype else ''}{size}"
        )
    if facts.download_bytes:
        lines.append(f"to download: {readable(facts.download_bytes)}")
    if facts.model_unknown:
        lines.append(f"model: unknown: {facts.model_unknown}")
    if facts.calibration_tokens is not None and facts.evaluation_tokens is not None:
        how = {
            "counted": "as counted by the data stage",
            "sampled": "estimated from a sample with the model's tokenizer",
            "assumed": "assumed from the number of characters, as the tokenizer is not here",
        }[facts.text_known_by or "assumed"]
        lines.append(
            f"text: {_count(facts.calibration_tokens)} tokens to calibrate on, "
            f"{_count(facts.evaluation_tokens)} to evaluate on, {how}"
        )
    if facts.text_unknown:
        lines.append(f"text: unknown: {facts.text_unknown}")
    return lines


def _summary(made: Plan) -> list[str]:
    if not made.to_run:
        return ["Everything is in the store: the answer takes seconds."]
    lines = []
    unknown = [stage.name for stage in made.to_run if stage.seconds is None]
    if made.seconds is not None:
        besides = f", besides {', '.join(unknown)}" if unknown else ""
        lines.append(f"Time: about {duration(made.seconds)}{besides} ({_basis(made)})")
    for room in made.fit.rooms:
        verdict = "" if room.fits else ": cannot fit"
        left = "unknown" if room.available is None else readable(room.available)
        tight = ", tight" if room.tight else ""
        where = f" (most in {room.stage})" if room.stage else ""
        needed = f"about {readable(room.needed)}{where}"
        lines.append(f"{room.what.capitalize()}: {needed} of {left} available{tight}{verdict}")
    if made.fit.unknown:
        lines.append(f"Memory and disk are unknown for {', '.join(made.fit.unknown)}")
    if not made.fit.fits:
        lines.append("`quantflow run` refuses this recipe here unless it is told --force.")
    return lines


def _basis(made: Plan) -> str:
    start = f"{duration(made.start_seconds)} of it to start"
    learned = [stage.name for stage in made.to_run if stage.seconds_by == "learned"]
    counted = [stage.name for stage in made.to_run if stage.seconds_by == "counted"]
    if not learned:
        return f"work counted, over the measured speed of this machine; {start}"
    said = f"{', '.join(learned)} as learned from stored stages"
    return f"{said}, the rest counted; {start}" if counted else f"{said}; {start}"


def _count(number: int) -> str:
    for name, scale in (("billion", 1e9), ("million", 1e6)):
        if number >= scale:
            return f"{number / scale:.3g} {name}"
    return f"{number:,}"
