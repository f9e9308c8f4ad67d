"""`quantflow report`: the page of an earlier run, rendered again from its report.json."""

from pathlib import Path
from typing import Annotated

import typer

from quantflow.report.read import find_report, load_report
from quantflow.report.wording import Language
from quantflow.report.write import HTML_FILE, write_report


def report(
    run: Annotated[
        str, typer.Argument(help="A run's id or its beginning, `latest`, or its report's folder.")
    ],
    language: Annotated[
        Language | None, typer.Option("--language", help="Language of the page: en or zh; else as it was.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Folder to write report.json and report.html to; else the run's own."),
    ] = None,
) -> int:
    """Render a run's report again; nothing is computed."""
    folder = find_report(run, Path.cwd())
    shown = load_report(folder)
    if language is not None:
        shown = shown.model_copy(update={"language": language})
    target = output or folder
    write_report(shown, target.resolve())
    print(f"Report: {target / HTML_FILE}")
    return 0
