"""`quantflow export`: a run's report in the form that another program reads."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from quantflow.errors import RecipeError
from quantflow.pipeline.storage import explained_storage
from quantflow.report.junit import junit_xml
from quantflow.report.markdown import markdown
from quantflow.report.model import Report
from quantflow.report.prometheus import prometheus_text
from quantflow.report.read import find_report, load_report
from quantflow.report.write import put_file


class Form(StrEnum):
    """What a report can be exported as."""

    JUNIT = "junit"
    MARKDOWN = "markdown"
    PROMETHEUS = "prometheus"
    MODEL_CARD = "model-card"
    MLFLOW = "mlflow"


def export(
    run: Annotated[str, typer.Argument(help="Run id, `latest`, `latest:RECIPE`, or folder of a report.")],
    form: Annotated[Form, typer.Option("--format", help="What to write.")],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="File to write; standard output if none. Of mlflow: a folder or its tracking URI.",
        ),
    ] = None,
    artifact: Annotated[
        str | None, typer.Option("--artifact", help="Of which artifact: for model-card.")
    ] = None,
) -> int:
    """Write a report as JUnit XML, Markdown, Prometheus metrics or a model card, or log it to MLflow."""
    folder = find_report(run, Path.cwd())
    report = load_report(folder)
    if form is Form.MLFLOW:
        from quantflow.report.mlflow import log_to_mlflow

        if output is None:
            raise RecipeError(
                "nothing says where MLflow is",
                where="--output",
                hint="A folder, such as mlruns, or the address of a server.",
            )
        print(f"Logged as MLflow run {log_to_mlflow(report, folder, output)}.")
        return 0
    text = _text(report, form, artifact)
    if output is None:
        print(text, end="")
    else:
        with explained_storage(output, kept=""):
            put_file(Path(output), text)
    return 0


def _text(report: Report, form: Form, artifact: str | None) -> str:
    if form is Form.JUNIT:
        return junit_xml(report)
    if form is Form.MARKDOWN:
        return markdown(report)
    if form is Form.PROMETHEUS:
        return prometheus_text(report)
    from quantflow.report.model_card import model_card

    names = [entry.name for entry in report.artifacts]
    wanted = artifact or (names[0] if len(names) == 1 else None)
    if wanted not in names:
        raise RecipeError(
            f"the run has no artifact {artifact!r}" if artifact else "the run has several artifacts",
            where="--artifact",
            hint=f"Name one of: {', '.join(names)}.",
        )
    return model_card(report, report.artifacts[names.index(wanted)])
