"""What a run takes from the history and leaves there."""

from collections.abc import Mapping
from pathlib import Path

from quantflow.gate.verdict import Verdict
from quantflow.history.database import HISTORY_FILE, opened
from quantflow.history.entries import decisions_on, latest, put
from quantflow.report.decision import Decision
from quantflow.report.model import Report, TrendPoint

TREND_RUNS = 30
"""Runs that a report looks back on: a month of nights."""


def looked_back(
    workspace: Path, recipe: str, digests: Mapping[str, str]
) -> tuple[tuple[Decision, ...], tuple[TrendPoint, ...]]:
    """Decisions about an artifact's very bytes, and the recipe's last runs.

    Args:
        workspace: The workspace, `.quantflow`.
        recipe: Name of the recipe.
        digests: Artifact → digest of its bytes.

    Raises:
        StoreError: The history cannot be read.
    """
    if not (workspace / HISTORY_FILE).is_file():
        return (), ()
    with opened(workspace) as connection:
        decisions = decisions_on(connection, recipe)
        runs = latest(connection, recipe=recipe, limit=TREND_RUNS)
    mine = tuple(d for d in decisions if any(d.covers(name, digest) for name, digest in digests.items()))
    trend = tuple(
        TrendPoint(
            run_id=run.run_id,
            started=run.started,
            artifact=artifact.name,
            verdict=Verdict(artifact.verdict),
            perplexity_increase=artifact.perplexity_increase,
            kl_mean=artifact.kl_mean,
        )
        for run in runs
        for artifact in run.artifacts
    )
    return mine, trend


def record_run(workspace: Path, report: Report, folder: Path) -> None:
    """Put a finished run into the history.

    Args:
        workspace: The workspace.
        report: The run's report.
        folder: Where the report lies, absolute.

    Raises:
        StoreError: The history cannot be written.
    """
    with opened(workspace) as connection:
        put(connection, report, str(folder.relative_to(workspace.parent)))
