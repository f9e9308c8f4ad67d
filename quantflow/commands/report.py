"""`quantflow report`: the page of an earlier run, rendered again from its report.json."""

from pathlib import Path
from typing import Annotated

import typer

from quantflow.errors import RecipeError
from quantflow.report.read import find_report, load_report
from quantflow.report.redaction import redact
from quantflow.report.text import TextLevel
from quantflow.report.wording import Language
from quantflow.report.write import HTML_FILE, write_report


def report(
    run: Annotated[
        str, typer.Argument(help="A run's id or its beginning, `latest`, or its report's folder.")
    ],
    language: Annotated[
        Language | None, typer.Option("--language", help="Language of the page: en or zh; else as it was.")
    ] = None,
    text: Annotated[
        TextLevel | None,
        typer.Option("--text", help="What to leave of texts of models and data: full, redacted or none."),
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
    if text is not None and target.resolve() == folder.resolve():
        raise RecipeError(
            "the run's own report would lose its texts",
            where="--text",
            hint="Name another folder to write to: --output FOLDER.",
        )
    if text is not None:
        shown = redact(shown, text)
    write_report(shown, target.resolve())
    print(f"Report: {target / HTML_FILE}")
    return 0
