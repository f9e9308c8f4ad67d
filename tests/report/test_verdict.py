"""Why a criterion came out as it did: what, by how much, how sure, in either language."""

from datetime import date

import pytest

from quantflow.gate.verdict import Verdict
from quantflow.report.decision import Decision
from quantflow.report.html import MOST_WHYS, render_html
from quantflow.report.verdict import MOST_SLICES, by_slice, deciding, leading, why
from quantflow.report.wording import load_wording
from tests.report.samples import criterion, report

EN, ZH = load_wording("en"), load_wording("zh")


def test_a_failure_says_what_by_how_much_and_how_sure() -> None:
    text = why(criterion("perplexity", Verdict.FAIL), EN)
    assert text.startswith("Perplexity (int4-awq): +22.13 % (90 % interval +20.01 % to +24.30 %)")
    assert "+15 % is allowed" in text and "Even the better end of the interval is beyond the margin." in text
    assert "fewer than 1 of 20 runs" in render_html(report(Verdict.FAIL, Verdict.FAIL))


@pytest.mark.parametrize(
    ("verdict", "changes", "said"),
    [
        (Verdict.PASS, {}, "All of the interval is inside the margin of 0.15."),
        (Verdict.INCONCLUSIVE, {}, "The margin of 0.15 lies within the interval"),
        (Verdict.INCONCLUSIVE, {"n_clusters": 12}, "from 12 documents: too few to judge"),
        (
            Verdict.INCONCLUSIVE,
            {"ci_low": None, "ci_high": None, "n_clusters": 1},
            "from 1 document: too few",
        ),
        (Verdict.ERROR, {}, "nothing was measured to hold against the margin of 0.15"),
    ],
)
def test_each_outcome_has_its_sentence(verdict: Verdict, changes: dict[str, object], said: str) -> None:
    assert said in why(criterion("kl", verdict, **changes), EN)


def test_a_lower_bound_is_called_one_unless_it_fails() -> None:
    bound = {"metric": "kl_lower_bound"}
    assert "never pass it" in why(criterion("kl", Verdict.INCONCLUSIVE, **bound), EN)
    assert "beyond the margin" in why(criterion("kl", Verdict.FAIL, **bound), EN)


def test_a_slice_is_named() -> None:
    assert why(criterion("kl", Verdict.FAIL, slice="billing"), EN).startswith(
        "Mean KL, slice billing (int4-awq)"
    )


def test_chinese_says_the_same_figures() -> None:
    text = why(criterion("kl", Verdict.FAIL), ZH)
    assert text.startswith("平均 KL\uff08int4-awq\uff09\uff1a0.2213\uff0890 % 区间 0.2001 至 0.2430\uff09")
    assert "容限" in text and "0.15" in text


def test_only_required_criteria_of_the_run_s_verdict_decide() -> None:
    advisory = criterion("kl", Verdict.FAIL, required=False)
    failed = criterion("perplexity", Verdict.FAIL)
    shown = report(Verdict.FAIL, Verdict.PASS, criteria=(advisory, failed, criterion("kl", Verdict.PASS)))
    assert deciding(shown) == (failed,)


def test_decisions_of_people_stand_beside_the_verdict_and_change_none() -> None:
    waiver = Decision(
        kind="waiver",
        run_id="1",
        recipe="quickstart",
        by="Kim <b>",
        at="2026-11-30T08:00:00+00:00",
        reason="Billing letters are checked by hand.",
        digests={"int4-awq": "ab" * 32},
        criterion="kl",
        until=date(2026, 12, 31),
    )
    approval = waiver.model_copy(update={"kind": "approval", "criterion": None, "until": None})
    page = render_html(report(Verdict.FAIL, Verdict.FAIL, decisions=(waiver, approval)))
    assert (
        "kl of int4-awq waived by Kim &lt;b&gt;, 2026-11-30T08:00:00+00:00, until 2026-12-31: Billing" in page
    )
    assert "int4-awq approved by Kim &lt;b&gt;" in page
    assert '<section class="verdict fail"' in page


def test_of_many_slices_those_that_do_not_pass_come_first_and_all_are_in_the_table() -> None:
    names = [f"part {number}" for number in range(100)]
    passing = tuple(criterion("kl", Verdict.PASS, slice=name) for name in names)
    failing = tuple(criterion("kl", Verdict.FAIL, slice=name) for name in names)
    whole = criterion("kl", Verdict.FAIL)
    shown = report(Verdict.FAIL, Verdict.FAIL, criteria=(whole, *passing, *failing))
    assert leading(shown) == (whole, *failing[:MOST_SLICES])
    assert by_slice(shown) == (*passing, *failing)
    page = render_html(shown)
    assert page.count('class="why"') == 1 + MOST_SLICES
    assert "170 more criteria by slice" in page
    assert f"{1 + MOST_SLICES - MOST_WHYS} more, among the criteria below" in page


def test_speed_by_requests_and_tasks_are_no_slices() -> None:
    speed = criterion("speed", Verdict.PASS, metric="speedup_throughput", slice="8 at a time")
    task = criterion("tasks", Verdict.FAIL, metric="exact_match", slice="gsm8k")
    assert by_slice(report(Verdict.FAIL, Verdict.FAIL, criteria=(speed, task))) == ()
    assert why(task, EN).startswith("gsm8k, exact_match, lost (int4-awq): 22.13 % (90 % interval 20.01 % to")


def test_agreement_is_a_share_of_which_some_is_lost() -> None:
    lost = criterion("kl", Verdict.FAIL, metric="top1_agreement", value=0.7787)
    page = render_html(report(Verdict.FAIL, Verdict.FAIL, criteria=(lost,))).replace("\u00a0", " ")
    assert "77.9 %" in page and "22.13 %" in page and "margin 15 %" in page


def test_a_failure_says_its_corrected_p_and_what_could_have_been_seen() -> None:
    failed = criterion("kl", Verdict.FAIL, holm_p=0.0031, detectable=0.012)
    page = render_html(report(Verdict.FAIL, Verdict.FAIL, criteria=(failed,))).replace("\u00a0", " ")
    assert "p is 0.0031 (Holm)" in page and "a change of 0.0120 with a power of 80 %" in page
