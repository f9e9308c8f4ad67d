import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from quantflow.data.documents import Document, save_documents
from quantflow.data.windows import EVALUATION_FILE, make_windows, save_windows
from quantflow.gate.criteria import CriterionResult, GateResult
from quantflow.gate.params import GateParams
from quantflow.gate.stage import judge, load_gate, near_groups, run, summarise
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
    baseline = Samples(document=document, nll=nll, kl=None, top1=top1)
    after = nll + per_document(documents, delta, delta_spread)
    return baseline, Samples(
        document=document, nll=after, kl=per_document(documents, kl, kl_spread), top1=top1
    )


def gate(samples: tuple[Samples, Samples], params: GateParams = PARAMS) -> GateResult:
    baseline, measured = samples
    return judge(
        params, expected=baseline.document, baseline=baseline, measured=measured, vocab_size=VOCABULARY
    )


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
    # 1.671093 is t(0.95, 59 degrees of freedom).
    half = 1.671093 * 0.01 / math.sqrt(60)
    assert perplexity.ci_low == pytest.approx(math.exp(0.02 - half) - 1, rel=1e-6)
    assert perplexity.ci_high == pytest.approx(math.exp(0.02 + half) - 1, rel=1e-6)
    assert (perplexity.n, perplexity.n_clusters, perplexity.margin) == (3000, 60, 0.03)
    assert perplexity.reason == (
        "Perplexity changes by +2.02 % (90 % interval +1.8 % to +2.24 %): even the upper end is inside "
        "the margin of +3 %."
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

    asked = judged(60).needed_clusters
    assert asked is not None
    assert judged(asked).verdict is Verdict.PASS
    assert judged(asked - 1).verdict is Verdict.INCONCLUSIVE


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
    result = judge(PARAMS, expected=expected, baseline=baseline, measured=measured, vocab_size=VOCABULARY)
    assert result.verdict is Verdict.ERROR


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
    save_inspection(folders["inspect"], INSPECTION)
    windows = make_windows([np.zeros(TOKENS + 1, dtype=np.int32)] * 60, range(60))
    save_windows(folders["data"] / EVALUATION_FILE, windows)
    save_documents(folders["data"], [Document(f"d{i}", "all", "evaluation", TOKENS + 1) for i in range(60)])
    save_measurement(folders["baseline"], MEASUREMENT, baseline)
    save_measurement(folders["measure"], MEASUREMENT, measured)
    for output in (folders["first"], folders["second"]):
        run(PARAMS, folders, output, Recorder())
    result = load_gate(folders["first"])
    assert result == gate((baseline, measured))
    assert result.verdict is Verdict.FAIL
    written = [(folders[name] / "gate.json").read_bytes() for name in ("first", "second")]
    assert written[0] == written[1]


def test_near_duplicates_are_one_sample_as_the_windows_of_one_document_are() -> None:
    samples = pair(documents=60, delta=0.01, delta_spread=0.04)
    documents = [Document(f"d{i}", "all", "evaluation", 9, near=i // 2 * 2) for i in range(60)]

    def perplexity(documents: list[Document]) -> CriterionResult:
        groups = near_groups(documents)
        result = judge(PARAMS, samples[0].document, *samples, VOCABULARY, groups=groups)
        return next(criterion for criterion in result.criteria if criterion.metric == "perplexity")

    alone, grouped = (
        perplexity([replace(document, near=None) for document in documents]),
        perplexity(documents),
    )
    assert (alone.n_clusters, grouped.n_clusters) == (60, 30)
    assert grouped.n == alone.n
    assert grouped.delta == pytest.approx(alone.delta)
    assert grouped.ci_high is not None and alone.ci_high is not None
    # Neighbours differ little here: half as many samples say little more than half as much.
    assert grouped.ci_high - alone.ci_high > 0.3 * (alone.ci_high - (alone.delta or 0))
    fewer = [replace(document, near=i // 4 * 4) for i, document in enumerate(documents)]
    assert perplexity(fewer).verdict is Verdict.INCONCLUSIVE


def test_documents_without_near_duplicates_are_samples_by_themselves() -> None:
    documents = [Document(f"d{i}", "all", "evaluation", 9, near=1 if i in (1, 3) else None) for i in range(5)]
    assert near_groups(documents).tolist() == [0, 1, 2, 1, 4]


def test_only_required_criteria_decide() -> None:
    perplexity, kl = gate(pair(kl=1.0)).criteria
    assert kl.verdict is Verdict.FAIL
    optional = kl.model_copy(update={"required": False})
    assert summarise((perplexity, optional))[0] is Verdict.PASS
    assert summarise((optional,))[0] is Verdict.INCONCLUSIVE
    assert summarise(())[0] is Verdict.INCONCLUSIVE
