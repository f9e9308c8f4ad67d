"""Runs in the history: put in from their reports, and asked for."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from quantflow.report.decision import Decision
from quantflow.report.model import ArtifactReport, Report

CRITERION_COLUMNS = (
    *("artifact", "name", "slice", "metric", "baseline", "value", "delta"),
    *("ci_low", "ci_high", "margin", "n", "n_clusters"),
)
"""Fields of a criterion that the history keeps as they are."""


class ArtifactEntry(BaseModel):
    """An artifact of a run, as the history keeps it.

    Attributes:
        name: As in the recipe.
        format: File format.
        verdict: The gate's.
        bytes: Size; None where it was not made.
        digest: Digest of its bytes.
        perplexity: Its perplexity.
        perplexity_increase: Relative, a fraction, beside the baseline of its run.
        kl_mean: Mean KL, nats per token; the following are its 99 % quantile and the top-1 agreement.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    format: str
    verdict: str
    bytes: int | None
    digest: str | None
    perplexity: float | None
    perplexity_increase: float | None
    kl_mean: float | None
    kl_p99: float | None
    top1_agreement: float | None


class RunEntry(BaseModel):
    """A run, as the history keeps it.

    Attributes:
        run_id: Its name.
        recipe: Its recipe's name.
        started: ISO 8601, UTC.
        seconds: Wall time.
        verdict: The run's verdict.
        exit_code: What the command ended with.
        reason: Why, in plain words.
        report: Folder of the report, relative to where the workspace lies.
        artifacts: What it made.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    recipe: str
    started: str
    seconds: float | None
    verdict: str
    exit_code: int
    reason: str
    report: str
    artifacts: tuple[ArtifactEntry, ...]


def put(connection: sqlite3.Connection, report: Report, folder: str) -> None:
    """Put a run in, in place of what is there of it.

    Args:
        connection: Of `opened`.
        report: The run's report.
        folder: Where the report lies, relative to where the workspace lies.
    """
    provenance: Mapping[str, Any] = report.provenance
    machine, source = provenance.get("machine", {}), report.baseline
    connection.execute("DELETE FROM runs WHERE run_id = ?", (report.run_id,))
    _insert(
        connection,
        "runs",
        run_id=report.run_id,
        recipe=report.recipe,
        started=str(provenance.get("started", "")),
        seconds=provenance.get("seconds"),
        verdict=report.verdict.value,
        exit_code=report.exit_code,
        reason=report.reason,
        report=folder,
        source=source.source if source else None,
        identity=source.identity if source else None,
        device=machine.get("device"),
    )
    for artifact in report.artifacts:
        _insert(connection, "artifacts", run_id=report.run_id, **_artifact(artifact))
    for position, criterion in enumerate(report.criteria):
        row = {key: getattr(criterion, key) for key in CRITERION_COLUMNS}
        row |= {"verdict": criterion.verdict.value, "required": criterion.required}
        _insert(connection, "criteria", run_id=report.run_id, position=position, **row)
    for position, stage in enumerate(provenance.get("stages", ())):
        row = {key: stage.get(key) for key in ("name", "key", "reused", "seconds")}
        _insert(connection, "stages", run_id=report.run_id, position=position, **row)
    for decision in report.decisions:
        put_decision(connection, decision)


def put_decision(connection: sqlite3.Connection, decision: Decision) -> None:
    """Append a decision; one that is there already is left as it is."""
    connection.execute(
        "INSERT OR IGNORE INTO decisions (run_id, recipe, at, content) VALUES (?, ?, ?, ?)",
        (decision.run_id, decision.recipe, decision.at, decision.model_dump_json()),
    )


def decisions_on(connection: sqlite3.Connection, recipe: str) -> tuple[Decision, ...]:
    """Every decision about runs of a recipe, the oldest first."""
    rows = connection.execute("SELECT content FROM decisions WHERE recipe = ? ORDER BY at, id", (recipe,))
    return tuple(Decision.model_validate_json(row["content"]) for row in rows)


def latest(
    connection: sqlite3.Connection,
    *,
    recipe: str | None = None,
    since: str | None = None,
    limit: int | None = None,
) -> tuple[RunEntry, ...]:
    """The last runs, the oldest of them first.

    Args:
        connection: Of `opened`.
        recipe: Of this recipe only.
        since: Started at this time or later, ISO 8601, UTC.
        limit: At most so many; None for all.
    """
    runs = connection.execute(
        "SELECT * FROM runs WHERE (?1 IS NULL OR recipe = ?1) AND (?2 IS NULL OR started >= ?2)"
        " ORDER BY started DESC, run_id DESC LIMIT ?3",
        (recipe, since, -1 if limit is None else limit),
    ).fetchall()
    artifacts = _artifacts_of(connection, [run["run_id"] for run in runs])
    names = [name for name in RunEntry.model_fields if name != "artifacts"]
    return tuple(
        RunEntry(**{name: run[name] for name in names}, artifacts=tuple(artifacts.get(run["run_id"], ())))
        for run in reversed(runs)
    )


def verdicts_of(connection: sqlite3.Connection, run_id: str) -> Mapping[str, tuple[str, str | None]]:
    """Artifact of a run → its verdict, and the digest of the bytes it is about; empty of an unknown run."""
    rows = connection.execute("SELECT name, verdict, digest FROM artifacts WHERE run_id = ?", (run_id,))
    return {row["name"]: (row["verdict"], row["digest"]) for row in rows}


_PARAMETERS = 500
"""Of one statement: below the limit of every build of SQLite."""


def _artifacts_of(
    connection: sqlite3.Connection, run_ids: Sequence[str]
) -> Mapping[str, Sequence[ArtifactEntry]]:
    found: dict[str, list[ArtifactEntry]] = {}
    names = list(ArtifactEntry.model_fields)
    for start in range(0, len(run_ids), _PARAMETERS):
        part = run_ids[start : start + _PARAMETERS]
        rows = connection.execute(
            "SELECT artifacts.*, criteria.delta AS perplexity_increase FROM artifacts"
            " LEFT JOIN criteria ON criteria.run_id = artifacts.run_id AND criteria.artifact = artifacts.name"
            " AND criteria.name = 'perplexity' AND criteria.slice = 'all'"
            f" WHERE artifacts.run_id IN ({', '.join('?' * len(part))}) ORDER BY artifacts.rowid",
            part,
        )
        for row in rows:
            entry = ArtifactEntry.model_construct(**{name: row[name] for name in names})
            found.setdefault(row["run_id"], []).append(entry)
    return found


def _artifact(artifact: ArtifactReport) -> dict[str, Any]:
    measured = artifact.measurements
    kl = measured.kl if measured else None
    return {
        "name": artifact.name,
        "format": artifact.format,
        "verdict": artifact.verdict.value,
        "bytes": artifact.bytes,
        "digest": artifact.digest,
        "perplexity": measured.perplexity.value if measured else None,
        "kl_mean": kl.mean if kl else None,
        "kl_p99": kl.p99 if kl else None,
        "top1_agreement": kl.top1_agreement if kl else None,
    }


def _insert(connection: sqlite3.Connection, table: str, **values: object) -> None:
    columns, marks = ", ".join(values), ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(values.values()))
