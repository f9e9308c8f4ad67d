"""Publishes what a run made, with its report and checksums, where its recipe says."""

import tempfile
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path

from quantflow.errors import ArtifactError, RecipeError
from quantflow.recipe.publishing import HUB
from quantflow.release.artifact_check import CheckedArtifact, check_artifact, require_report_of
from quantflow.release.folder import publish_version
from quantflow.release.hub import publish_to_hub
from quantflow.release.permission import refusal
from quantflow.report.html import render_html
from quantflow.report.model import ArtifactReport, Report
from quantflow.report.model_card import model_card
from quantflow.report.redaction import redact
from quantflow.report.write import HTML_FILE, JSON_FILE, report_json

CARD = "README.md"


def shelf_of(to: Path, recipe: str, artifact: str) -> Path:
    """Folder in which the versions of an artifact lie."""
    return to / recipe / artifact


def publish_report(
    report: Report, folder: Path, to: str, say: Callable[[str], None], today: date
) -> tuple[str, ...]:
    """Publish every artifact of a run that may be; say which may not, and why.

    Args:
        report: The run's report, with the decisions about its bytes.
        folder: Where `artifacts/` lies.
        to: Absolute folder, or `hub://org/name`.
        say: Told what became of each.
        today: The day, by which waivers hold.

    Returns:
        Where each one that was published is.

    Raises:
        ArtifactError: An artifact's bytes are not those that the report is about.
        RecipeError: Several artifacts are to go into one repository of the hub.
        StoreError: It cannot be written there.
    """
    allowed: list[ArtifactReport] = []
    for artifact in report.artifacts:
        why = refusal(report, artifact, today)
        if why is None:
            allowed.append(artifact)
        else:
            say(f"{artifact.name} is not published: {why}.")
    if to.startswith(HUB) and len(allowed) > 1:
        raise RecipeError(
            f"{len(allowed)} artifacts would go into one repository",
            where="publish.to",
            hint="A repository of the hub holds one model: name a folder, or make a recipe for each.",
        )
    places = [_publish(report, artifact, folder, to, say) for artifact in allowed]
    for artifact, place in zip(allowed, places, strict=True):
        say(f"{artifact.name} is published: {place}")
    return tuple(places)


def _publish(
    report: Report, artifact: ArtifactReport, folder: Path, to: str, say: Callable[[str], None]
) -> str:
    checked = _checked(report, folder / artifact.path)
    add = partial(_add_report, report, artifact)
    if to.startswith(HUB):
        message = f"{report.recipe}/{artifact.name}, run {report.run_id}, {artifact.verdict.value}"
        with tempfile.TemporaryDirectory(prefix="quantflow-publish-") as staging:
            return publish_to_hub(checked.folder, to.removeprefix(HUB), message, add, Path(staging))
    shelf = shelf_of(Path(to), report.recipe, artifact.name)
    waiting = lambda who: say(f"Waiting for {who}: {shelf}.")  # noqa: E731
    done = publish_version(checked.folder, shelf, report.run_id, add, waiting)
    return str(done.place) if done.changed else f"{done.place} (these bytes were there already)"


def _checked(report: Report, folder: Path) -> CheckedArtifact:
    checked = check_artifact(folder)
    try:
        require_report_of(report, checked)
    except ArtifactError as error:
        raise ArtifactError(
            f"what lies there now is not what run {report.run_id} made",
            where=str(folder),
            hint="A later run replaced it: publish that one, or run the recipe again; the store answers.",
        ) from error
    return checked


def _add_report(report: Report, artifact: ArtifactReport, folder: Path) -> None:
    shown = redact(report, report.published_text)
    (folder / JSON_FILE).write_text(report_json(shown), encoding="utf-8")
    (folder / HTML_FILE).write_text(render_html(shown), encoding="utf-8", errors="replace")
    (folder / CARD).unlink(missing_ok=True)
    (folder / CARD).write_text(model_card(report, artifact), encoding="utf-8", errors="replace")
