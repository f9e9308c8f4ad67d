"""Who may publish: a pass, or a waiver that holds for every criterion missed, with an approval beside it."""

from datetime import date

from quantflow.gate.verdict import Verdict
from quantflow.release.permission import refusal
from quantflow.report.decision import Decision
from quantflow.report.model import Report
from tests.history.test_history import decision
from tests.report.samples import artifact, report

TODAY = date(2026, 11, 30)
APPROVAL = decision(kind="approval", criterion=None, until=None)


def why(*verdicts: Verdict, decisions: tuple[Decision, ...] = (), today: date = TODAY) -> str | None:
    found: Report = report(*verdicts)
    made = artifact(found.verdict, digest=f"{1:064x}")
    return refusal(found.model_copy(update={"decisions": decisions}), made, today)


def test_a_pass_may_be_published() -> None:
    assert why(Verdict.PASS, Verdict.PASS) is None


def test_a_failure_may_not() -> None:
    assert why(Verdict.PASS, Verdict.FAIL) == "its verdict is fail, and no waiver holds for: kl/kl_mean"


def test_a_waiver_needs_an_approval_and_an_approval_a_waiver() -> None:
    assert why(Verdict.PASS, Verdict.FAIL, decisions=(decision(),)) == (
        "what it misses is waived, but nobody has approved the run since"
    )
    assert why(Verdict.PASS, Verdict.FAIL, decisions=(APPROVAL,)) is not None
    assert why(Verdict.PASS, Verdict.FAIL, decisions=(decision(), APPROVAL)) is None


def test_every_criterion_missed_has_to_be_waived() -> None:
    given = (decision(), APPROVAL)
    assert why(Verdict.INCONCLUSIVE, Verdict.FAIL, decisions=given) == (
        "its verdict is fail, and no waiver holds for: perplexity"
    )


def test_a_waiver_holds_until_its_day_and_for_its_bytes() -> None:
    given = (decision(until=date(2026, 11, 30)), APPROVAL)
    assert why(Verdict.PASS, Verdict.FAIL, decisions=given) is None
    assert why(Verdict.PASS, Verdict.FAIL, decisions=given, today=date(2026, 12, 1)) is not None
    other = (decision(digests={"int4-awq": "0" * 64}), APPROVAL)
    assert why(Verdict.PASS, Verdict.FAIL, decisions=other) is not None


def test_nothing_waives_an_error() -> None:
    given = (decision(), decision(criterion="perplexity"), APPROVAL)
    assert why(Verdict.ERROR, Verdict.FAIL, decisions=given) == "its verdict is error, which nothing waives"


def test_an_approval_from_before_the_waiver_approves_nothing() -> None:
    given = (decision(at="2026-11-03T08:00:00+00:00"), APPROVAL)
    assert why(Verdict.PASS, Verdict.FAIL, decisions=given) is not None


def test_a_waiver_covers_its_slice_and_metric_and_no_other_of_the_name() -> None:
    found = report(Verdict.PASS, Verdict.FAIL)
    (missed,) = (c for c in found.criteria if c.verdict is Verdict.FAIL)
    german = missed.model_copy(update={"slice": "de"})
    tail = missed.model_copy(update={"metric": "kl_p99"})
    made = artifact(found.verdict, digest=f"{1:064x}")
    for other in (german, tail):
        both = found.model_copy(
            update={"criteria": (*found.criteria, other), "decisions": (decision(), APPROVAL)}
        )
        assert refusal(both, made, TODAY) == f"its verdict is fail, and no waiver holds for: {other.label}"
    assert (german.label, tail.label) == ("kl/kl_mean[de]", "kl/kl_p99")
