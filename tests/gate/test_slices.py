"""Criteria on parts of the evaluation data, and criteria that only advise."""

from dataclasses import replace

import numpy as np

from quantflow.gate.params import GateParams, SliceMargin
from quantflow.gate.result import GateResult
from quantflow.gate.verdict import Verdict
from quantflow.measure.measurement import Samples
from tests.gate.test_gate import PARAMS, gate, pair

SLICES = ("billing", "orders") * 60


def with_slices(*margins: SliceMargin, metric: str = "perplexity", **more: bool) -> GateParams:
    return PARAMS.model_copy(update={f"{metric}_slices": margins, **more})


def worse_in_orders(documents: int = 120) -> tuple[Samples, Samples]:
    baseline, measured = pair(documents, delta=0.005, delta_spread=0.002)
    odd = measured.document % 2 == 1
    return baseline, replace(measured, nll=measured.nll + 0.1 * odd)


def verdicts(result: GateResult) -> dict[str, Verdict]:
    return {c.slice: c.verdict for c in result.criteria if c.name == "perplexity"}


def test_a_slice_that_loses_too_much_fails_though_the_whole_passes() -> None:
    params = with_slices(SliceMargin(slice="*", margin=0.03, required=True)).model_copy(
        update={"max_increase": 0.1}
    )
    result = gate(worse_in_orders(), params, slices=SLICES)
    assert verdicts(result) == {"all": Verdict.PASS, "billing": Verdict.PASS, "orders": Verdict.FAIL}
    assert result.verdict is Verdict.FAIL
    assert result.reason.startswith("orders: Perplexity changes by")


def test_a_slice_that_only_advises_is_told_and_does_not_decide() -> None:
    advice = SliceMargin(slice="orders", margin=0.03, required=False)
    params = with_slices(advice).model_copy(update={"max_increase": 0.1})
    result = gate(worse_in_orders(), params, slices=SLICES)
    assert verdicts(result)["orders"] is Verdict.FAIL
    assert result.verdict is Verdict.PASS
    assert "1 of those that are not required do not pass" in result.reason


def test_a_margin_of_its_own_goes_before_that_of_each() -> None:
    own = SliceMargin(slice="orders", margin=0.2, required=True)
    each = SliceMargin(slice="*", margin=0.03, required=True)
    result = gate(worse_in_orders(), with_slices(each, own), slices=SLICES)
    assert {c.slice: c.margin for c in result.criteria if c.name == "perplexity"} == {
        "all": 0.03,
        "orders": 0.2,
        "billing": 0.03,
    }


def test_a_slice_of_fewer_than_30_documents_is_inconclusive_and_says_so() -> None:
    params = with_slices(SliceMargin(slice="orders", margin=0.5, required=True))
    result = gate(worse_in_orders(58), params, slices=SLICES)
    assert verdicts(result)["orders"] is Verdict.INCONCLUSIVE
    orders = next(c for c in result.criteria if c.slice == "orders")
    assert "29 documents are too few" in orders.reason


def test_a_slice_without_a_document_is_inconclusive_never_a_pass() -> None:
    for metric in ("perplexity", "kl"):
        missing = SliceMargin(slice="refunds", margin=0.5, required=True)
        result = gate(pair(), with_slices(missing, metric=metric))
        judged = next(c for c in result.criteria if c.slice == "refunds")
        assert judged.verdict is Verdict.INCONCLUSIVE
        assert judged.reason == (
            "refunds: No evaluation document is of this slice, so there is nothing to judge."
        )
        assert result.verdict is Verdict.INCONCLUSIVE


def test_each_slice_means_those_without_an_evaluation_document_too() -> None:
    each = SliceMargin(slice="*", margin=0.5, required=True)
    for metric in ("perplexity", "kl"):
        # The last slice's documents are in calibration, say: it is known, and nothing of it is measured.
        result = gate(pair(), with_slices(each, metric=metric), slices=SLICES, known=("refunds",))
        judged = {c.slice: c for c in result.criteria if c.slice != "all"}
        assert judged["refunds"].verdict is Verdict.INCONCLUSIVE
        assert "No evaluation document is of this slice" in judged["refunds"].reason
        assert judged["orders"].verdict is Verdict.PASS
        assert result.verdict is Verdict.INCONCLUSIVE


def test_the_mean_kl_is_judged_by_slice_too() -> None:
    baseline, measured = pair(120, kl=0.01, kl_spread=0.001)
    assert measured.kl is not None
    worse = replace(measured, kl=measured.kl + 0.2 * (measured.document % 2 == 1))
    each = SliceMargin(slice="*", margin=0.05, required=True)
    params = with_slices(each, metric="kl").model_copy(update={"max_mean_kl": 0.5})
    result = gate((baseline, worse), params, slices=SLICES)
    assert [(c.slice, c.verdict) for c in result.criteria if c.name == "kl"] == [
        ("all", Verdict.PASS),
        ("billing", Verdict.PASS),
        ("orders", Verdict.FAIL),
    ]


def test_a_criterion_that_is_not_required_does_not_decide() -> None:
    params = PARAMS.model_copy(update={"kl_required": False})
    result = gate(pair(kl=1.0), params)
    assert result.verdict is Verdict.PASS
    assert np.array([c.required for c in result.criteria]).tolist() == [True, False]
