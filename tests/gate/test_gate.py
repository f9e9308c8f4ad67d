import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quantflow.data.documents import Document, save_documents
from quantflow.data.windows import EVALUATION_FILE, make_windows, save_windows
from quantflow.gate.criteria import CriterionResult, GateResult
from quantflow.gate.params import GateParams
from quantflow.gate.stage import Asked, independent_groups, judge, load_gate, run, summarise
from quantflow.gate.verdict import Verdict
from quantflow.inspection.record import Inspection, save_inspection
from quantflow.measure.measurement import (
    Measurement,
    PerplexityValue,
    RuntimeInfo,
    Samples,
    save_measurement,
)
from tests.data.recording import Recorder

PARAMS = GateParams(artifact="int4", max_increase=0.03, max_mean_kl=0.05)
TOKENS = 50
VOCABULARY = 400  # a guess among so many costs 5.99 nats, the samples below 3
INSPECTION = Inspection(
    vocab_size=VOCABULARY,
    tensors=29,
    perplexities={"english": 90.0},
    characters_per_token={"english": 2.0},
    chat_template=True,
    generations=(),
)
MEASUREMENT = Measurement(
    runtime=RuntimeInfo(name="torch", version="2", device="cpu", dtype="float32", options={}),
    perplexity=PerplexityValue(value=20.0, nll=3.0, tokens=3000, documents=60),
    kl=None,
    slices={},
)


def per_document(documents: int, mean: float, spread: float) -> NDArray[np.float64]:
    """A value per token with this mean over documents and this standard deviation between them."""
    steps = np.linspace(-1, 1, documents) if documents > 1 else np.zeros(1)
    scaled = steps / (steps.std(ddof=1) or 1) if documents > 1 else steps
    return np.repeat(mean + spread * scaled, TOKENS)


def pair(
    documents: int = 60,
    delta: float = 0.01,
    delta_spread: float = 0.01,
    kl: float = 0.01,
    kl_spread: float = 0.005,
) -> tuple[Samples, Samples]:
    """Baseline and artifact samples whose mean ΔNLL and KL, and their spread, are as asked."""
    document = np.repeat(np.arange(documents, dtype=np.int32), TOKENS)
    nll = np.full(document.size, 3.0)
    top1 = np.ones(document.size, dtype=np.bool_)
    target = np.zeros(document.size, dtype=np.int32)
    baseline = Samples(document=document, nll=nll, kl=None, top1=top1, target=target)
    after = nll + per_document(documents, delta, delta_spread)
    divergence = per_document(documents, kl, kl_spread)
    return baseline, Samples(document=document, nll=after, kl=divergence, top1=top1, target=target)


ALONE = np.arange(1000, dtype=np.int32)
"""Every document for itself."""


def asked(document: NDArray[np.int32], clusters: NDArray[np.int32] = ALONE, **more: Any) -> Asked:
    target = np.zeros(document.size, dtype=np.int32)
    slices, known = more.get("slices", ("all",) * 1000), more.get("known", ())
    return Asked(document, target, clusters, slices, VOCABULARY, known)


def gate(
    samples: tuple[Samples, Samples],
    params: GateParams = PARAMS,
    clusters: NDArray[np.int32] = ALONE,
    **more: Any,
) -> GateResult:
    baseline, measured = samples
    return judge(params, asked(baseline.document, clusters, **more), baseline, measured)


def criterion(result: GateResult, name: str) -> CriterionResult:
    return next(c for c in result.criteria if c.name == name)


def test_gate_passes_when_every_bad_end_is_inside_its_margin() -> None:
    result = gate(pair())
    assert [c.verdict for c in result.criteria] == [Verdict.PASS, Verdict.PASS]
    assert result.verdict is Verdict.PASS
    assert result.reason == "All 2 required criteria pass."


def test_perplexity_is_shown_as_perplexities_and_judged_as_relative_increase() -> None:
    perplexity = criterion(gate(pair(delta=0.02)), "perplexity")
    assert perplexity.baseline == pytest.approx(math.exp(3.0))
    assert perplexity.value == pytest.approx(math.exp(3.02))
    assert perplexity.delta == pytest.approx(math.exp(0.02) - 1)
    assert perplexity.ci_low is not None and perplexity.ci_high is not None
    # 1.671093 is t(0.95, 59 degrees of freedom), which symmetric documents come close to.
    half = 1.671093 * 0.01 / math.sqrt(60)
    assert math.log1p(perplexity.ci_low) == pytest.approx(0.02 - half, abs=0.1 * half)
    assert math.log1p(perplexity.ci_high) == pytest.approx(0.02 + half, abs=0.1 * half)
    assert (perplexity.n, perplexity.n_clusters, perplexity.margin) == (3000, 60, 0.03)
    assert re.fullmatch(
        r"Perplexity changes by \+2.02 % \(90 % interval \+1.\d+ % to \+2.\d+ %\): even the upper end is "
        r"inside the margin of \+3 %\.",
        perplexity.reason,
    )


def test_gate_fails_when_the_good_end_is_outside_the_margin() -> None:
    result = gate(pair(delta=0.06))
    assert criterion(result, "perplexity").verdict is Verdict.FAIL
    assert criterion(result, "kl").verdict is Verdict.PASS
    assert result.verdict is Verdict.FAIL
    assert "even the lower end is outside the margin of +3 %" in result.reason


def test_gate_is_inconclusive_when_margin_is_inside_interval() -> None:
    result = gate(pair(kl=0.045, kl_spread=0.06))
    kl = criterion(result, "kl")
    assert kl.verdict is Verdict.INCONCLUSIVE and result.verdict is Verdict.INCONCLUSIVE
    assert kl.ci_low is not None and kl.ci_high is not None
    assert kl.ci_low < kl.margin < kl.ci_high
    assert kl.needed_clusters is not None
    assert f"about {kl.needed_clusters} documents would decide it" in result.reason


def test_gate_is_inconclusive_not_a_fail_when_only_the_estimate_is_outside_the_margin() -> None:
    kl = criterion(gate(pair(kl=0.055, kl_spread=0.06)), "kl")
    assert kl.delta is not None and kl.delta > kl.margin
    assert kl.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("kl", {"kl": 0.045, "kl_spread": 0.06}),
        ("perplexity", {"delta": math.log(1.8), "delta_spread": 0.6}),
    ],
)
def test_the_number_of_documents_asked_for_really_decides(name: str, samples: dict[str, float]) -> None:
    params = GateParams(artifact="int4", max_increase=1.0, max_mean_kl=0.05)

    def judged(documents: int) -> CriterionResult:
        return criterion(gate(pair(documents, **samples), params), name)

    needed = judged(60).needed_clusters
    assert needed is not None
    # Resampling gives other tails for another number of documents, by a little.
    assert judged(round(1.1 * needed)).verdict is Verdict.PASS
    assert judged(round(0.9 * needed)).verdict is Verdict.INCONCLUSIVE


def test_an_improvement_passes_however_large() -> None:
    perplexity = criterion(gate(pair(delta=-0.5)), "perplexity")
    assert perplexity.verdict is Verdict.PASS
    assert perplexity.delta == pytest.approx(math.exp(-0.5) - 1)


def test_an_identical_artifact_has_delta_exactly_zero_and_passes() -> None:
    result = gate(pair(delta=0, delta_spread=0, kl=0, kl_spread=0))
    assert [c.delta for c in result.criteria] == [0.0, 0.0]
    assert [(c.ci_low, c.ci_high) for c in result.criteria] == [(0.0, 0.0), (0.0, 0.0)]
    assert result.verdict is Verdict.PASS


def test_without_spread_an_effect_equal_to_the_margin_is_inconclusive_and_no_number_decides() -> None:
    params = GateParams(artifact="int4", max_increase=0.0, max_mean_kl=0.05)
    perplexity = criterion(gate(pair(delta=0, delta_spread=0), params), "perplexity")
    assert perplexity.verdict is Verdict.INCONCLUSIVE
    assert perplexity.needed_clusters is None
    assert "no number of documents would decide it" in perplexity.reason


def test_fewer_than_30_documents_never_pass_and_never_fail() -> None:
    for delta in (0.0, 1.0):
        result = gate(pair(documents=29, delta=delta, delta_spread=0))
        assert result.verdict is Verdict.INCONCLUSIVE
        assert "29 documents are too few" in result.reason
        assert criterion(result, "perplexity").needed_clusters == 30
    assert gate(pair(documents=30)).verdict is Verdict.PASS


def test_one_document_is_inconclusive_with_its_effect_and_no_interval() -> None:
    perplexity = criterion(gate(pair(documents=1, delta_spread=0)), "perplexity")
    assert perplexity.verdict is Verdict.INCONCLUSIVE
    assert perplexity.delta == pytest.approx(math.exp(0.01) - 1)
    assert (perplexity.ci_low, perplexity.ci_high, perplexity.needed_clusters) == (None, None, None)


def test_nothing_scored_is_inconclusive_with_the_reason() -> None:
    empty = Samples(
        document=np.empty(0, dtype=np.int32),
        nll=np.empty(0),
        kl=np.empty(0),
        top1=np.empty(0, dtype=np.bool_),
        target=np.empty(0, dtype=np.int32),
    )
    result = gate((empty, empty))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reason == "No position was scored, so there is nothing to judge."


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_an_error(bad: float) -> None:
    baseline, measured = pair()
    for field in ("nll", "kl"):
        values = getattr(measured, field).copy()
        values[17] = bad
        broken = replace(measured, **{field: values})
        result = gate((baseline, broken))
        assert result.verdict is Verdict.ERROR
        assert "not a finite number at 1 of 3000 positions" in result.reason
    values = baseline.nll.copy()
    values[17] = bad
    result = gate((replace(baseline, nll=values), measured))
    assert "The baseline's loss is not a finite number" in result.reason


def test_a_perplexity_beyond_floats_is_an_error() -> None:
    result = gate(pair(delta=2000))
    assert criterion(result, "perplexity").verdict is Verdict.ERROR
    assert "too large" in result.reason


@pytest.mark.parametrize(
    ("loss", "verdict"), [(5.3, Verdict.PASS), (5.4, Verdict.INCONCLUSIVE), (9.0, Verdict.INCONCLUSIVE)]
)
def test_nothing_passes_beside_a_baseline_that_guesses(loss: float, verdict: Verdict) -> None:
    baseline, measured = pair()
    change = loss - baseline.nll[0]
    shifted = replace(baseline, nll=baseline.nll + change), replace(measured, nll=measured.nll + change)
    result = gate(shifted)
    assert result.verdict is verdict
    assert ("no better than chance" in result.reason) is (verdict is Verdict.INCONCLUSIVE)


def test_a_baseline_that_guesses_does_not_save_an_artifact_that_fails() -> None:
    baseline, measured = pair(delta=0.06)
    shifted = replace(baseline, nll=baseline.nll + 3), replace(measured, nll=measured.nll + 3)
    assert gate(shifted).verdict is Verdict.FAIL


def test_a_measurement_without_kl_is_an_error_never_a_pass() -> None:
    baseline, measured = pair()
    result = gate((baseline, replace(measured, kl=None)))
    assert criterion(result, "perplexity").verdict is Verdict.PASS
    assert criterion(result, "kl").verdict is Verdict.ERROR
    assert result.verdict is Verdict.ERROR


def test_samples_of_another_length_are_an_error() -> None:
    baseline, _ = pair(documents=60)
    _, measured = pair(documents=59)
    result = gate((baseline, measured))
    assert [c.verdict for c in result.criteria] == [Verdict.ERROR, Verdict.ERROR]
    assert "scored at 2950 positions where the evaluation data has 3000" in result.reason


def test_samples_of_other_documents_are_an_error() -> None:
    baseline, measured = pair()
    result = gate((baseline, replace(measured, document=measured.document[::-1].copy())))
    assert result.verdict is Verdict.ERROR
    assert "The artifact was scored on other documents" in result.reason


def test_samples_that_cover_only_part_of_the_evaluation_data_are_an_error_even_where_both_do() -> None:
    baseline, measured = pair()
    expected = np.repeat(np.arange(61, dtype=np.int32), TOKENS)
    assert judge(PARAMS, asked(expected), baseline, measured).verdict is Verdict.ERROR


@pytest.mark.parametrize("whose", ["baseline", "artifact"])
def test_samples_of_other_tokens_of_the_same_documents_are_an_error(whose: str) -> None:
    samples = dict(zip(("baseline", "artifact"), pair(), strict=True))
    other = np.zeros(3000, dtype=np.int32)
    other[7] = 1
    samples[whose] = replace(samples[whose], target=other)
    result = gate((samples["baseline"], samples["artifact"]))
    assert result.verdict is Verdict.ERROR
    assert f"The {whose} was scored on other tokens" in result.reason
    assert "position 7" in result.reason


def test_samples_that_do_not_say_their_tokens_are_an_error() -> None:
    baseline, measured = pair()
    result = gate((baseline, replace(measured, target=None)))
    assert result.verdict is Verdict.ERROR
    assert "cannot be paired" in result.reason


def test_samples_whose_arrays_differ_in_length_are_an_error() -> None:
    baseline, measured = pair()
    assert measured.kl is not None
    result = gate((baseline, replace(measured, kl=measured.kl[:-1])))
    assert result.verdict is Verdict.ERROR
    assert "several lengths: 2999, 3000" in result.reason


def test_the_stage_judges_what_data_baseline_and_measure_wrote(tmp_path: Path) -> None:
    baseline, measured = pair(delta=0.06)
    roles = ("data", "baseline", "inspect", "measure", "first", "second")
    folders = {role: tmp_path / role for role in roles}
    for folder in folders.values():
        folder.mkdir()
    tokens = np.zeros(60 * (TOKENS + 1), dtype=np.int32)
    windows = make_windows(np.split(tokens, 60), range(60))
    save_windows(folders["data"] / EVALUATION_FILE, windows)
    save_documents(folders["data"], [Document(str(i), "all", "evaluation", TOKENS + 1) for i in range(60)])
    save_inspection(folders["inspect"], INSPECTION)
    save_measurement(folders["baseline"], MEASUREMENT, baseline)
    save_measurement(folders["measure"], MEASUREMENT, measured)
    for output in (folders["first"], folders["second"]):
        run(PARAMS, folders, output, Recorder())
    result = load_gate(folders["first"])
    assert result == gate((baseline, measured))
    assert result.verdict is Verdict.FAIL
    written = [(folders[name] / "gate.json").read_bytes() for name in ("first", "second")]
    assert written[0] == written[1]


def test_near_duplicates_are_one_piece_of_evidence_however_many_there_are() -> None:
    samples = pair()
    assert gate(samples).verdict is Verdict.PASS
    result = gate(samples, clusters=np.zeros(60, dtype=np.int32))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert {c.n_clusters for c in result.criteria} == {1}
    half = np.repeat(np.arange(0, 60, 3, dtype=np.int32), 3)
    assert gate(samples, clusters=half).criteria[0].n_clusters == 20
    assert gate(samples, clusters=half).verdict is Verdict.INCONCLUSIVE


def test_documents_without_near_duplicates_stand_for_themselves() -> None:
    nears = (None, None, 0, None, 3, 0)
    documents = [Document(str(i), "all", "evaluation", 9, near) for i, near in enumerate(nears)]
    assert independent_groups(documents).tolist() == [0, 1, 0, 3, 3, 0]


def test_only_required_criteria_decide() -> None:
    perplexity, kl = gate(pair(kl=1.0)).criteria
    assert kl.verdict is Verdict.FAIL
    optional = kl.model_copy(update={"required": False})
    assert summarise((perplexity, optional))[0] is Verdict.PASS
    assert summarise((optional,))[0] is Verdict.INCONCLUSIVE
    assert summarise(())[0] is Verdict.INCONCLUSIVE
