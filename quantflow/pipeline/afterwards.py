"""What follows a run's verdict: its place in the history, and publishing what passed."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from quantflow.errors import QuantFlowError, StoreError
from quantflow.history.after_run import looked_back, record_run
from quantflow.pipeline.events import Event
from quantflow.recipe.publishing import HUB
from quantflow.recipe.schema import Recipe
from quantflow.release.publish import publish_report
from quantflow.report.model import Report


def with_history(report: Report, workspace: Path) -> Report:
    """The report with what the history knows; one that cannot be read is an event."""
    digests = {artifact.name: artifact.digest for artifact in report.artifacts if artifact.digest}
    try:
        decisions, trend = looked_back(workspace, report.recipe, digests)
    except StoreError as error:
        unread = Event(code="history-unreadable", stage="report", message=f"{error.message}.")
        return report.model_copy(update={"events": (*report.events, unread)})
    return report.model_copy(update={"decisions": decisions, "trend": trend})


def remember(report: Report, report_folder: Path, workspace: Path, say: Callable[[str], None]) -> None:
    """Put the run into the history; the verdict stands without it."""
    try:
        record_run(workspace, report, report_folder)
    except StoreError as error:
        say(f"The run is not in the history: {error.message}. {error.hint}")


def release(recipe: Recipe, report: Report, folder: Path, say: Callable[[str], None]) -> None:
    """Publish what may be, where the recipe says so.

    Raises:
        QuantFlowError: It cannot be published there; the verdict and the report are as they were.
    """
    if recipe.publish is None:
        return
    to = recipe.publish.to
    place = to if to.startswith(HUB) else str((recipe.base / Path(to).expanduser()).resolve())
    try:
        publish_report(report, folder, place, say, datetime.now().astimezone().date())
    except QuantFlowError as error:
        hint = (
            f"The run is complete, with the verdict {report.verdict}, and nothing of it is lost. {error.hint}"
        )
        raise type(error)(
            f"publishing failed: {error.message}", where=error.where, hint=hint.strip()
        ) from error
