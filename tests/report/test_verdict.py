"""Why a criterion came out as it did: what, by how much, how sure, in either language."""

import pytest

from quantflow.gate.verdict import Verdict
from quantflow.report.verdict import deciding, why
from quantflow.report.wording import load_wording
from tests.report.samples import criterion, report

EN, ZH = load_wording("en"), load_wording("zh")


def test_a_failure_says_what_by_how_much_and_how_sure() -> None:
    text = why(criterion("perplexity", Verdict.FAIL), EN)
    assert text.startswith("Perplexity (int4-awq): +22.13 % (90 % interval +20.01 % to +24.30 %)")
    assert "+15 % is allowed" in text and "fewer than 1 of 20 runs" in text


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
    assert "real loss" in why(criterion("kl", Verdict.FAIL, **bound), EN)


def test_a_slice_is_named() -> None:
    assert why(criterion("kl", Verdict.FAIL, slice="billing"), EN).startswith("Mean KL in billing (int4-awq)")


def test_chinese_says_the_same_figures() -> None:
    text = why(criterion("kl", Verdict.FAIL), ZH)
    assert text.startswith("平均 KL\uff08int4-awq\uff09\uff1a0.2213\uff0890 % 区间 0.2001 至 0.2430\uff09")
    assert "容限" in text and "0.15" in text


def test_only_required_criteria_of_the_run_s_verdict_decide() -> None:
    advisory = criterion("kl", Verdict.FAIL, required=False)
    failed = criterion("perplexity", Verdict.FAIL)
    shown = report(Verdict.FAIL, Verdict.PASS, criteria=(advisory, failed, criterion("kl", Verdict.PASS)))
    assert deciding(shown) == (failed,)
