"""`quantflow approve` and `quantflow waive`: a person's decision, on record with the bytes it is about."""

import getpass
import os
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

import typer

from quantflow.errors import RecipeError
from quantflow.gate.result import CriterionResult
from quantflow.gate.verdict import Verdict
from quantflow.history.database import opened
from quantflow.history.entries import put_decision
from quantflow.pipeline.store import WORKSPACE
from quantflow.report.decision import Decision
from quantflow.report.model import Report
from quantflow.report.read import find_report, load_report
from quantflow.report.write import write_report

RUN = Annotated[str, typer.Argument(help="Run id, `latest`, `latest:RECIPE`, or folder of a report.")]
BY = Annotated[str | None, typer.Option("--by", help="Who decides. Default: the user's name here.")]


def approve(
    run: RUN,
    reason: Annotated[str, typer.Option("--reason", help="Why, in a sentence.")],
    by: BY = None,
) -> int:
    """Approve what a run made; no verdict changes."""
    folder = find_report(run, Path.cwd())
    report = load_report(folder)
    if not any(artifact.digest for artifact in report.artifacts):
        raise RecipeError("the run made no artifact that could be approved", where=report.run_id)
    _decide(folder, report, _decision("approval", report, reason, by, digests(report)))
    return 0


def waive(
    run: RUN,
    criterion: Annotated[
        str,
        typer.Option(
            "--criterion",
            help="The one criterion waived: perplexity, 'perplexity[de]', kl/kl_p99, 'tasks/acc[gsm8k]'.",
        ),
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why, in a sentence.")],
    until: Annotated[
        str, typer.Option("--until", metavar="DATE", help="Last day on which it holds, e.g. 2027-01-31.")
    ],
    by: BY = None,
) -> int:
    """Waive a criterion that a run's artifacts miss, until a day; the verdict stays what it is."""
    folder = find_report(run, Path.cwd())
    report = load_report(folder)
    label = missed_label(report, criterion)
    decision = _decision(
        "waiver", report, reason, by, missing_it(report, label), criterion=label, until=_day(until)
    )
    _decide(folder, report, decision)
    return 0


def missed_label(report: Report, asked: str) -> str:
    """The label of the one criterion of a run that is meant.

    Args:
        report: The run's.
        asked: Its label, in full or without the metric.

    Raises:
        RecipeError: The run misses no such criterion, or several.
    """
    missed = [c for c in report.criteria if c.required and c.verdict is not Verdict.PASS]
    labels = sorted({c.label for c in missed})
    meant = {c.label for c in missed if asked in (c.label, _without_metric(c))}
    if asked in labels:
        return asked
    if len(meant) == 1:
        return meant.pop()
    if meant:
        raise RecipeError(
            f"the run misses {len(meant)} criteria {asked!r}, and a waiver is of one",
            where="--criterion",
            hint=f"Name one of {', '.join(sorted(meant))}.",
        )
    raise RecipeError(
        f"the run does not miss a criterion {asked!r}",
        where="--criterion",
        hint=f"It misses: {', '.join(labels) or 'none'}.",
    )


def _without_metric(criterion: CriterionResult) -> str:
    return criterion.model_copy(update={"metric": criterion.name}).label


def _day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError as error:
        raise RecipeError(f"{text!r} is no date", where="--until", hint="Write 2027-01-31.") from error
    if day < datetime.now().astimezone().date():
        raise RecipeError("the day has passed", where="--until")
    return day


def digests(report: Report) -> dict[str, str]:
    """Artifact → digest of its bytes, of those that a run made."""
    return {a.name: a.digest for a in report.artifacts if a.digest}


def missing_it(report: Report, label: str) -> dict[str, str]:
    """The same of those that miss a criterion: of the others nobody has seen anything that could be waived.

    Args:
        report: The run's.
        label: The criterion's.
    """
    missing = {c.artifact for c in report.criteria if c.label == label and c.verdict is not Verdict.PASS}
    return {name: digest for name, digest in digests(report).items() if name in missing}


def _decision(
    kind: str, report: Report, reason: str, by: str | None, about: Mapping[str, str], **more: object
) -> Decision:
    if not reason.strip():
        raise RecipeError("a decision needs a reason", where="--reason")
    return Decision.model_validate(
        {
            "kind": kind,
            "run_id": report.run_id,
            "recipe": report.recipe,
            "by": by or _user(),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "reason": reason,
            "digests": dict(about),
            **more,
        }
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # a container's user without a name
        raise RecipeError(
            "nothing says who decides", where="--by", hint="Name a person: --by NAME."
        ) from error


def _decide(folder: Path, report: Report, decision: Decision) -> None:
    """The history first: a decision that only a report shows could be written by anyone."""
    with opened(Path.cwd() / WORKSPACE) as connection:
        put_decision(connection, decision)
    write_report(report.model_copy(update={"decisions": (*report.decisions, decision)}), folder.resolve())
    what = (
        "Approved" if decision.criterion is None else f"Waived until {decision.until}: {decision.criterion}"
    )
    print(f"{what}, by {decision.by}, of run {report.run_id}. Its verdict stays {report.verdict.value}.")
    print(f"Report: {os.path.relpath(folder)}/report.html")
