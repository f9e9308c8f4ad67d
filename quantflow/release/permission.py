"""Whether an artifact may be published: on a pass, or where people waived what is missed and approved it."""

from datetime import date

from quantflow.gate.verdict import Verdict
from quantflow.report.decision import approval_of, waiver_of
from quantflow.report.model import ArtifactReport, Report


def refusal(report: Report, artifact: ArtifactReport, today: date) -> str | None:
    """Why an artifact may not be published; None where it may.

    A waiver turns no verdict into a pass: beside it somebody has to approve the run.

    Args:
        report: The run's report, with the decisions about its bytes.
        artifact: One of its artifacts.
        today: The day.
    """
    if artifact.digest is None:
        return "it was not made"
    if artifact.verdict is Verdict.PASS:
        return None
    criteria = [c for c in report.criteria if c.artifact == artifact.name and c.required]
    missed = [c for c in criteria if c.verdict is not Verdict.PASS]
    if artifact.verdict is Verdict.ERROR or not missed:
        return f"its verdict is {artifact.verdict.value}, which nothing waives"
    open_ones = [c for c in missed if waiver_of(c, artifact.digest, report.decisions, today) is None]
    if open_ones:
        names = ", ".join(sorted({c.label for c in open_ones}))
        return f"its verdict is {artifact.verdict.value}, and no waiver holds for: {names}"
    approval = approval_of(artifact.name, artifact.digest, report.decisions)
    waivers = [waiver_of(c, artifact.digest, report.decisions, today) for c in missed]
    if approval is None or any(waiver is not None and waiver.at > approval.at for waiver in waivers):
        return "what it misses is waived, but nobody has approved the run since"
    return None
