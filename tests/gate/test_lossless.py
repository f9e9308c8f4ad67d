"""Three levels of lossless: what each takes, and what is said of the next one."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from quantflow.gate.lossless import IdenticalOutputs, find_level, level_criterion
from quantflow.gate.stage import judge
from quantflow.gate.verdict import Verdict
from quantflow.measure.measurement import Samples
from quantflow.measure.noise_floor import NoiseFloor
from tests.gate.test_gate import PARAMS, asked, pair

NOISE = NoiseFloor(
    how="each window alone",
    perplexity=1e-7,
    kl_mean=1e-9,
    kl_p99=1e-8,
    kl_max=1e-7,
    nll_max=2e-5,
    top1_differs=0.0,
    tokens=500,
    documents=10,
)
COPY = pair(delta=0, delta_spread=0, kl=0, kl_spread=0)
LOSSY = pair()
AGAIN = IdenticalOutputs(identical=995, n=1000)


def test_an_exact_copy_reaches_the_first_level() -> None:
    found = find_level(Verdict.PASS, *COPY, NOISE)
    assert found.level == "L1"
    assert found.sentence.startswith("It reaches L1, mathematically lossless.")


def test_differences_within_the_runtime_s_noise_are_none() -> None:
    baseline, measured = COPY
    shaken = replace(measured, nll=measured.nll + 3e-5)
    assert find_level(Verdict.PASS, baseline, shaken, NOISE).level == "L1"
    beyond = replace(measured, nll=measured.nll + 5e-5)
    assert find_level(Verdict.PASS, baseline, beyond, NOISE).level == "L3"


def test_one_position_that_differs_is_enough_to_miss_the_first_level() -> None:
    baseline, measured = COPY
    for field in ("nll", "kl"):
        values = getattr(measured, field).copy()
        values[17] += 0.001
        found = find_level(Verdict.PASS, baseline, replace(measured, **{field: values}), NOISE)
        assert found.level == "L3"


def test_a_copy_is_not_off_everywhere_by_what_the_noise_reaches_at_its_worst_position() -> None:
    baseline, measured = COPY
    assert measured.kl is not None
    rough = NOISE.model_copy(update={"kl_max": 0.02, "nll_max": 0.2, "kl_mean": 1e-4})
    everywhere = replace(measured, kl=np.full_like(measured.kl, 0.01))
    found = find_level(Verdict.PASS, baseline, everywhere, rough)
    assert found.level == "L3"
    assert "the mean KL is 0.01, where it allows 0.0002" in found.checks[0].reason
    rare = measured.kl.copy()
    rare[17] = 0.01
    assert find_level(Verdict.PASS, baseline, replace(measured, kl=rare), rough).level == "L1"


def test_outputs_after_prompts_of_one_document_are_one_piece_of_evidence() -> None:
    apart, together = (IdenticalOutputs(identical=500, n=500, documents=d) for d in (500, 40))
    assert find_level(Verdict.PASS, *LOSSY, NOISE, apart, AGAIN).level == "L2"
    assert together.at_least == pytest.approx(0.05 ** (1 / 40))
    assert find_level(Verdict.PASS, *LOSSY, NOISE, together, AGAIN).level == "L3"


def test_the_third_level_is_never_called_lossless_and_says_what_the_second_lacks() -> None:
    found = find_level(Verdict.PASS, *LOSSY, NOISE)
    assert found.level == "L3"
    assert "That is not lossless: it may lose what the margins allow." in found.sentence
    assert "For L2, output-identical, it lacks this: No outputs were compared" in found.sentence


@pytest.mark.parametrize(
    ("identical", "n", "level"),
    [(995, 1000, "L2"), (985, 1000, "L3"), (499, 499, "L3"), (500, 500, "L2"), (0, 1000, "L3")],
)
def test_outputs_are_identical_where_they_are_as_often_as_the_baseline_s_own(
    identical: int, n: int, level: str
) -> None:
    outputs = IdenticalOutputs(identical=identical, n=n)
    assert find_level(Verdict.PASS, *LOSSY, NOISE, outputs, AGAIN).level == level


def test_the_rate_s_bound_is_clopper_and_pearson_s() -> None:
    # All of n identical: the bound is 0.05 to the power of 1 / n.
    assert IdenticalOutputs(identical=500, n=500).at_least == pytest.approx(0.05 ** (1 / 500))
    assert IdenticalOutputs(identical=0, n=500).at_least == 0.0


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.ERROR])
def test_nothing_is_reached_beside_a_required_criterion_that_is_not_met(verdict: Verdict) -> None:
    assert find_level(verdict, *COPY, NOISE).level is None


def test_what_was_not_measured_is_not_known_and_never_reached() -> None:
    baseline, measured = COPY
    without = [
        find_level(Verdict.PASS, baseline, measured, None),
        find_level(Verdict.PASS, baseline, replace(measured, kl=None), NOISE),
        find_level(Verdict.PASS, *pair(29, delta=0, delta_spread=0, kl=0, kl_spread=0), NOISE),
        find_level(Verdict.PASS, baseline, measured, NOISE, all_measured=False),
    ]
    assert [found.checks[0].reached for found in without] == [None] * 4
    for found in without:
        assert level_criterion("int4", found, "L1").verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("samples", "required", "verdict"),
    [
        (COPY, "L1", Verdict.PASS),
        (COPY, "L3", Verdict.PASS),
        (LOSSY, "L1", Verdict.FAIL),
        (LOSSY, "L2", Verdict.INCONCLUSIVE),  # no outputs were compared
        (LOSSY, "L3", Verdict.PASS),
    ],
)
def test_a_required_level_decides(samples: tuple[Samples, Samples], required: str, verdict: Verdict) -> None:
    params = PARAMS.model_copy(update={"require": required})
    result = judge(params, asked(samples[0].document), *samples, noise=NOISE)
    assert result.verdict is verdict
    assert [c.name for c in result.criteria] == ["perplexity", "kl", "require"]


def test_criteria_tell_the_noise_floor_of_their_metric() -> None:
    result = judge(PARAMS, asked(LOSSY[0].document), *LOSSY, noise=NOISE)
    assert [c.noise_floor for c in result.criteria] == [1e-7, 1e-9]
    without = judge(PARAMS, asked(LOSSY[0].document), *LOSSY)
    assert [c.noise_floor for c in without.criteria] == [None, None]


def test_a_head_scaled_by_two_percent_is_not_the_first_level() -> None:
    logits = np.random.default_rng(1).normal(0, 3, (3000, 50))

    def log_softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(values - np.log(np.exp(values).sum(axis=1, keepdims=True)))

    p, q = log_softmax(logits), log_softmax(1.02 * logits)
    baseline, measured = COPY
    before = replace(baseline, nll=-p[:, 0])
    after = replace(measured, nll=-q[:, 0], kl=(np.exp(p) * (p - q)).sum(axis=1))
    assert find_level(Verdict.PASS, before, after, NOISE).checks[0].reached is False
