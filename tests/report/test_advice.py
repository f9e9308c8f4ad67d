"""The verdict in one sentence, and the advice that goes with it."""

import pytest

from quantflow.gate.verdict import Verdict
from quantflow.report.advice import next_steps
from quantflow.report.lines import scheme_line
from quantflow.report.model import Report, Scheme
from quantflow.report.verdict import headline
from quantflow.report.wording import load_wording
from tests.report.samples import artifact, criterion, report

EN = load_wording("en")


def advice(shown: Report) -> str:
    return " ".join(next_steps(shown, EN))


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (Verdict.PASS, "int4-awq passes: every required criterion is inside its margin."),
        (Verdict.FAIL, "int4-awq loses more than the recipe allows."),
        (Verdict.INCONCLUSIVE, "Not decided: the evidence neither clears int4-awq nor rejects it."),
        (Verdict.ERROR, "int4-awq could not be judged."),
    ],
)
def test_each_verdict_has_its_sentence(verdict: Verdict, sentence: str) -> None:
    assert headline(report(verdict, verdict), EN) == sentence


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (Verdict.PASS, "a, b and c pass: every required criterion is inside its margin."),
        (Verdict.FAIL, "a, b and c lose more than the recipe allows."),
        (Verdict.INCONCLUSIVE, "Not decided: the evidence neither clears a, b and c nor rejects them."),
        (Verdict.ERROR, "a, b and c could not be judged."),
    ],
)
def test_several_artifacts_are_named_together(verdict: Verdict, sentence: str) -> None:
    artifacts = tuple(artifact(verdict, name=name) for name in "abc")
    assert headline(report(verdict, verdict, artifacts=artifacts), EN) == sentence


def test_only_artifacts_that_share_the_runs_verdict_are_named() -> None:
    artifacts = (artifact(Verdict.PASS, name="good"), artifact(Verdict.FAIL, name="bad"))
    mixed = report(Verdict.PASS, Verdict.FAIL, artifacts=artifacts)
    assert headline(mixed, EN) == "bad loses more than the recipe allows."
    assert "Do not ship bad." in advice(mixed)
    assert "good passed and can ship without the rest." in advice(mixed)


def test_only_a_pass_advises_to_ship() -> None:
    assert "Ship what is in artifacts/quickstart/int4-awq." in advice(report(Verdict.PASS, Verdict.PASS))
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.ERROR):
        steps = next_steps(report(verdict, verdict), EN)
        assert steps[0].startswith("Do not ship")
        assert not any(step.startswith("Ship") for step in steps)


def test_a_pass_with_events_advises_to_read_them_first() -> None:
    passed = report(Verdict.PASS, Verdict.PASS)
    assert next_steps(passed, EN)[0].startswith("Read the 2 events below")
    assert next_steps(passed.model_copy(update={"events": passed.events[:1]}), EN)[0].startswith(
        "Read the 1 event below"
    )
    assert "event" not in advice(passed.model_copy(update={"events": ()}))


def test_a_fail_advises_a_smaller_group_with_its_cost_and_names_the_margin_that_was_missed() -> None:
    text = advice(report(Verdict.PASS, Verdict.FAIL))
    # An fp16 scale and a 4-bit zero point a group: 20/32 − 20/64 bits.
    assert (
        "Try group_size 32 instead of 64 for int4-awq: finer scales, for 0.31 bits more per weight." in text
    )
    assert "gate.kl.max_mean" in text and "gate.perplexity.max_increase" not in text


def test_the_smallest_group_is_not_advised_to_shrink() -> None:
    smallest = artifact(Verdict.FAIL, scheme=Scheme(method="awq", bits=4, group_size=32))
    assert "group_size" not in advice(report(Verdict.FAIL, Verdict.FAIL, artifacts=(smallest,)))


def test_inconclusive_says_how_many_documents_would_decide_and_how_many_that_is_in_all() -> None:
    text = advice(report(Verdict.INCONCLUSIVE, Verdict.PASS))
    # 60 of 240 documents are in evaluation, so 412 there are 4 × 412 in all.
    assert "about 412 evaluation documents would decide it, 60 were measured" in text
    assert "with 25.0 % of documents in evaluation, that is about 1,648 in all." in text


def test_too_few_documents_advise_at_least_thirty() -> None:
    few = criterion("kl", Verdict.INCONCLUSIVE, n_clusters=12, needed_clusters=None)
    text = advice(report(Verdict.PASS, Verdict.INCONCLUSIVE, criteria=(few,), data=None))
    assert "about 30 evaluation documents would decide it, 12 were measured." in text


def test_an_effect_on_the_margin_is_not_promised_to_be_decided_by_text() -> None:
    equal = criterion("kl", Verdict.INCONCLUSIVE, needed_clusters=None)
    text = advice(report(Verdict.PASS, Verdict.INCONCLUSIVE, criteria=(equal,)))
    assert "no amount of text decides" in text
    assert "Add text" not in text


def test_criteria_that_do_not_count_give_no_advice() -> None:
    optional = criterion("kl", Verdict.INCONCLUSIVE, required=False, needed_clusters=9999)
    required = criterion("perplexity", Verdict.INCONCLUSIVE)
    text = advice(report(Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE, criteria=(required, optional)))
    assert "412" in text and "9,999" not in text


def test_an_error_without_any_artifact_still_has_a_sentence() -> None:
    assert headline(report(Verdict.ERROR, Verdict.ERROR, artifacts=()), EN) == "The run could not be judged."


def test_a_group_of_a_whole_row_is_advised_the_largest_size() -> None:
    row = artifact(Verdict.FAIL, scheme=Scheme(method="gptq", bits=3, group_size=-1, symmetric=True))
    text = advice(report(Verdict.FAIL, Verdict.FAIL, artifacts=(row,)))
    # A scale and a 3-bit zero point for 128 weights instead of for a row: 19/128 bits.
    assert "Try group_size 128 instead of -1 for int4-awq: finer scales, for 0.15 bits more" in text


def test_other_widths_and_methods_do_not_count_as_tried() -> None:
    two = (
        artifact(Verdict.FAIL, name="a", scheme=Scheme(method="gptq", bits=4, group_size=64)),
        artifact(Verdict.FAIL, name="b", scheme=Scheme(method="gptq", bits=8, group_size=32)),
    )
    assert "Try group_size 32 instead of 64 for a" in advice(
        report(Verdict.FAIL, Verdict.FAIL, artifacts=two)
    )


@pytest.mark.parametrize(
    ("scheme", "line"),
    [
        (Scheme(bits=16, dtype="float16"), "float16, not quantized"),
        (
            Scheme(method="awq", bits=4, group_size=64, symmetric=False),
            "awq, 4 bits, groups of 64, asymmetric",
        ),
        (
            Scheme(method="gptq", bits=3, group_size=-1, symmetric=True, desc_act=True),
            "gptq, 3 bits, one group a row, symmetric, columns by descending activation",
        ),
    ],
)
def test_a_scheme_is_said_in_words(scheme: Scheme, line: str) -> None:
    assert scheme_line(scheme, EN) == line
