"""`quantflow publish`, `rollback` and `verify-artifact`."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from quantflow.errors import ArtifactError, RecipeError
from quantflow.history.after_run import looked_back
from quantflow.history.database import opened
from quantflow.history.entries import verdicts_of
from quantflow.pipeline.store import WORKSPACE
from quantflow.recipe.publishing import HUB
from quantflow.release.artifact_check import check_artifact, require_report_of
from quantflow.release.folder import roll_back
from quantflow.release.publish import publish_report, shelf_of
from quantflow.report.figures import count, size
from quantflow.report.model import Report
from quantflow.report.read import all_reports, find_report, load_report
from quantflow.report.write import JSON_FILE

TO = Annotated[str, typer.Option("--to", metavar="PLACE", help="A folder, or hub://org/name.")]


def publish(
    run: Annotated[str, typer.Argument(help="Run id, `latest`, `latest:RECIPE`, or folder of a report.")],
    to: TO,
) -> int:
    """Publish the artifacts of a run that pass, or whose failures are waived and which somebody approved."""
    folder = find_report(run, Path.cwd())
    report = _with_decisions(load_report(folder))
    _require_recorded(report)
    place = to if to.startswith(HUB) else str(Path(to).resolve())
    done = publish_report(report, Path.cwd(), place, print, datetime.now().astimezone().date())
    if not done:
        raise ArtifactError("nothing of this run may be published", where=report.run_id)
    return 0


def rollback(
    recipe: Annotated[str, typer.Argument(help="Name of the recipe.")],
    artifact: Annotated[str, typer.Argument(help="Name of the artifact.")],
    to: Annotated[str, typer.Option("--to", metavar="FOLDER", help="Where it was published.")],
) -> int:
    """Let `current` lead to the version before; the one left becomes `previous`."""
    if to.startswith(HUB):
        raise RecipeError(
            "a repository of the hub is returned to an earlier version on the hub",
            where="--to",
            hint="The version before is the commit before: name its hash as the model's revision.",
        )
    shelf = shelf_of(Path(to).resolve(), recipe, artifact)
    left, now = roll_back(shelf, lambda who: print(f"Waiting for {who}: {shelf}.", file=sys.stderr))
    print(f"{recipe}/{artifact} is version {now} again, instead of {left}: {shelf / 'current'}")
    return 0


def verify_artifact(
    folder: Annotated[Path, typer.Argument(help="Folder of an artifact.")],
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", help="Its report.json. Default: beside it, else the one in reports/ about it."
        ),
    ] = None,
) -> int:
    """Check that an artifact's bytes are those that were written, and that a report is about these bytes."""
    checked = check_artifact(folder)
    print(f"{count(checked.files)} files, {size(checked.bytes)}: all are what was written.")
    print(
        f"{checked.name}, format {checked.format}, digest {checked.digest}, made from model {checked.source}."
    )
    found = _report_about(folder, report, checked.digest)
    if found is None:
        raise ArtifactError(
            "no report is about it here",
            where=str(folder),
            hint="Name one: --report reports/RECIPE/RUN/report.json. Nothing says that it passed a gate.",
        )
    entry = require_report_of(found, checked)
    print(f"Run {found.run_id} reports on these bytes: {entry.verdict.value}. {found.reason}")
    return 0


def _report_about(folder: Path, given: Path | None, digest: str) -> Report | None:
    if given is not None:
        return load_report(given.parent if given.name == JSON_FILE else given)
    if (folder / JSON_FILE).is_file():
        return load_report(folder)
    for place in reversed(all_reports(Path.cwd())):
        report = load_report(place)
        if any(artifact.digest == digest for artifact in report.artifacts):
            return report
    return None


def _require_recorded(report: Report) -> None:
    """Refuse a report whose verdicts are not those that the run left in the history."""
    with opened(Path.cwd() / WORKSPACE) as connection:
        recorded = verdicts_of(connection, report.run_id)
    said = {artifact.name: (artifact.verdict.value, artifact.digest) for artifact in report.artifacts}
    if recorded != said:
        raise ArtifactError(
            "the report does not say what the history has of this run",
            where=report.run_id,
            hint="It was changed, or was made elsewhere: run the recipe again here; the store answers.",
        )


def _with_decisions(report: Report) -> Report:
    """The report with what the history knows to be decided by now: a file beside it proves nothing."""
    digests = {artifact.name: artifact.digest for artifact in report.artifacts if artifact.digest}
    decisions, _ = looked_back(Path.cwd() / WORKSPACE, report.recipe, digests)
    return report.model_copy(update={"decisions": decisions})
