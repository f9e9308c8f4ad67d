"""What a person decided about a run: an approval, or a waiver of one criterion. Neither changes a verdict."""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Literal

from pydantic import BaseModel, ConfigDict

from quantflow.gate.criteria import CriterionResult


class Decision(BaseModel):
    """One decision.

    Attributes:
        kind: `approval` of what a run made, or `waiver` of a criterion that it does not meet.
        run_id: The run decided about.
        recipe: Its recipe's name.
        by: Who decided.
        at: When, ISO 8601, UTC.
        reason: Why, in their words.
        digests: Artifact → digest of the bytes that the decision is about; of no others.
        criterion: Label of the criterion waived, see `CriterionResult.label`: of that one, of no other of its
            name; None for an approval.
        until: Last day on which a waiver holds; None for an approval.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["approval", "waiver"]
    run_id: str
    recipe: str
    by: str
    at: str
    reason: str
    digests: Mapping[str, str]
    criterion: str | None = None
    until: date | None = None

    def covers(self, artifact: str, digest: str | None) -> bool:
        """Whether it is about these bytes of an artifact."""
        return digest is not None and self.digests.get(artifact) == digest


def waiver_of(
    criterion: CriterionResult, digest: str | None, decisions: Iterable[Decision], today: date
) -> Decision | None:
    """The waiver of a criterion that holds today; the latest of several, None where there is none."""
    found = [
        decision
        for decision in decisions
        if decision.kind == "waiver"
        and decision.criterion == criterion.label
        and decision.covers(criterion.artifact, digest)
        and decision.until is not None
        and today <= decision.until
    ]
    return max(found, key=lambda decision: decision.at, default=None)


def approval_of(artifact: str, digest: str | None, decisions: Iterable[Decision]) -> Decision | None:
    """The latest approval of an artifact's bytes; None where there is none."""
    found = [d for d in decisions if d.kind == "approval" and d.covers(artifact, digest)]
    return max(found, key=lambda decision: decision.at, default=None)
