"""`quantflow waive` is of one criterion, whose slice, task and metric are part of its name."""

import pytest

from quantflow.commands.decide import missed_label, missing_it
from quantflow.errors import RecipeError
from quantflow.gate.verdict import Verdict
from quantflow.report.model import Report
from tests.report.samples import criterion, report


def missing(*changes: dict[str, object]) -> Report:
    missed = tuple(criterion("kl", Verdict.FAIL).model_copy(update=change) for change in changes)
    return report(Verdict.PASS, Verdict.FAIL, criteria=(criterion("perplexity", Verdict.PASS), *missed))


def test_a_short_name_will_do_where_one_is_missed() -> None:
    run = missing({"slice": "de"})
    for asked in ("kl/kl_mean[de]", "kl[de]"):
        assert missed_label(run, asked) == "kl/kl_mean[de]"
    with pytest.raises(RecipeError, match="does not miss a criterion 'kl'") as refused:
        missed_label(run, "kl")
    assert refused.value.hint == "It misses: kl/kl_mean[de]."


def test_of_several_one_has_to_be_named() -> None:
    run = missing({}, {"metric": "kl_p99"}, {"slice": "de"})
    with pytest.raises(RecipeError, match="misses 2 criteria 'kl', and a waiver is of one") as refused:
        missed_label(run, "kl")
    assert refused.value.hint == "Name one of kl/kl_mean, kl/kl_p99."
    assert missed_label(run, "kl/kl_p99") == "kl/kl_p99"


def test_a_waiver_is_of_the_artifacts_that_miss_it_and_of_no_other_s_bytes() -> None:
    fine = criterion("kl", Verdict.PASS)
    bad = fine.model_copy(update={"artifact": "int4-gptq", "verdict": Verdict.FAIL})
    run = report(Verdict.PASS, Verdict.FAIL, criteria=(fine, bad))
    first = run.artifacts[0].model_copy(update={"digest": "a" * 64})
    second = first.model_copy(update={"name": "int4-gptq", "digest": "b" * 64})
    run = run.model_copy(update={"artifacts": (first, second)})
    assert missing_it(run, bad.label) == {"int4-gptq": "b" * 64}
