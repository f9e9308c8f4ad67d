"""`quantflow doctor`: whether this installation works, and what this machine means for quantized models."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from quantflow.doctor.examine import Examination, examine
from quantflow.doctor.finding import Level

BROKEN_EXIT = 2
_MARKS: dict[Level, str] = {"fine": "[green]✓[/]", "note": "[yellow]![/]", "broken": "[bold red]✗[/]"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> int:
    """Look at processor, memory, GPUs, disk and libraries, and say what follows for INT8, INT4 and bf16.

    Exit codes: 0 fine, 2 something is broken.
    """
    found = examine(Path.cwd())
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        _show(found)
    return BROKEN_EXIT if found.broken else 0


def _show(found: Examination) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for finding in found.findings:
        console.print(f"{_MARKS[finding.level]} {escape(finding.topic)}: {escape(finding.text)}")
    console.print()
    for topic, sentence in found.advice.items():
        console.print(f"[bold]{escape(topic)}[/]: {escape(sentence)}")
    console.print()
    broken = sum(finding.level == "broken" for finding in found.findings)
    console.print(
        f"{broken} {'thing is' if broken == 1 else 'things are'} broken." if broken else "All is well."
    )
