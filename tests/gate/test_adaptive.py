"""Criteria judged while documents come in."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.gate import look, stopped
from quantflow.gate.adaptive import Looks, SequentialMargins, all_decided, judge_looks
from quantflow.gate.sequential import look_levels
from quantflow.gate.studentized import Clusters
from quantflow.gate.verdict import Verdict
from quantflow.measure.looks import look_sizes
from quantflow.measure.measurement import Samples

DOCUMENTS, TOKENS = 120, 20
SIZES = look_sizes(DOCUMENTS)
MARGINS = SequentialMargins(artifact="int4", max_increase=0.03, max_mean_kl=0.05)


def samples(
    seed: int, delta: float, spread: float, kl: float, kl_spread: float = 0.3
) -> tuple[Samples, Samples]:
    rng = np.random.default_rng(seed)
    document = np.repeat(np.arange(DOCUMENTS, dtype=np.int32), TOKENS)
    shared = np.repeat(rng.normal(0, spread, DOCUMENTS), TOKENS)
    change = delta + shared + rng.normal(0, spread, document.size)
    divergence = kl * np.exp(np.repeat(rng.normal(-(kl_spread**2) / 2, kl_spread, DOCUMENTS), TOKENS))
    nll = np.full(document.size, 3.0)
    return Samples(document, nll), Samples(document, nll + change, kl=divergence)


def looks(taken: int) -> Looks:
    return Looks(SIZES, tuple(size * TOKENS for size in SIZES[:taken]))


def test_what_is_clear_is_decided_at_the_first_look() -> None:
    good = judge_looks(MARGINS, *samples(1, 0.001, 0.005, 0.01), looks(1))
    assert [result.verdict for result in good] == [Verdict.PASS, Verdict.PASS]
    assert all_decided(good)
    assert "Look 1 of" in good[0].reason and f"after {SIZES[0]} of {DOCUMENTS} documents" in good[0].reason
    bad = judge_looks(MARGINS, *samples(1, 0.2, 0.01, 0.5), looks(1))
    assert [result.verdict for result in bad] == [Verdict.FAIL, Verdict.FAIL]


def test_what_is_not_clear_goes_on() -> None:
    perplexity, kl = judge_looks(MARGINS, *samples(1, np.log(1.03), 0.05, 0.01), looks(1))
    assert (perplexity.verdict, kl.verdict) == (Verdict.INCONCLUSIVE, Verdict.PASS)
    assert not all_decided((perplexity, kl))


def test_a_criterion_once_decided_keeps_its_figures_whatever_comes_later() -> None:
    before, after = samples(1, 0.001, 0.005, 0.01)
    later = after.nll + np.where(np.arange(after.nll.size) >= SIZES[0] * TOKENS, 1.0, 0.0)
    first = judge_looks(MARGINS, before, after, looks(1))
    last = judge_looks(MARGINS, before, replace(after, nll=later), looks(len(SIZES)))
    assert last[0] == first[0] and last[0].n_clusters == SIZES[0]


def test_an_early_look_is_stricter_than_one_test() -> None:
    # Inside the margin at 5 % with 30 documents, and not at the level of the first look.
    before, after = samples(4, 0.019, 0.03, 0.01)
    inside = SIZES[0] * TOKENS
    alone = Looks((SIZES[0],), (inside,))
    perplexity = judge_looks(MARGINS, before, after, alone)[0]
    early = judge_looks(MARGINS, before, after, looks(1))[0]
    assert perplexity.verdict is Verdict.PASS and early.verdict is Verdict.INCONCLUSIVE
    assert (early.ci_low, early.ci_high) == (perplexity.ci_low, perplexity.ci_high)  # shown at 90 % still


def test_one_look_at_all_documents_is_the_fixed_test() -> None:
    whole = Looks((DOCUMENTS,), (DOCUMENTS * TOKENS,))
    for seed in range(5):
        before, after = samples(seed, 0.02, 0.04, 0.045)
        from quantflow.gate.perplexity import perplexity_criterion

        fixed = perplexity_criterion("int4", before, after, 0.03)
        found = judge_looks(MARGINS, before, after, whole)[0]
        assert found.model_copy(update={"reason": fixed.reason}) == fixed


@pytest.mark.parametrize("skewed", [False, True])
def test_the_verdict_is_that_of_what_the_benchmark_simulates(skewed: bool) -> None:
    levels = look_levels([size / DOCUMENTS for size in SIZES])
    margin = 0.05 if skewed else float(np.log1p(0.03))
    kinds = set()
    for seed in range(12):
        before, after = samples(seed, 0.004 * seed, 0.05, 0.005 * seed + 0.02, 0.6)
        values = after.kl if skewed else after.nll - before.nll
        assert values is not None
        sums = np.add.reduceat(values, np.arange(0, values.size, TOKENS))[None, :]
        at = []
        for size, level in zip(SIZES, levels, strict=True):
            seen = Clusters(sums[:, :size], np.full((1, size), float(TOKENS)))
            at.append(look(seen, level, skewed=skewed))
        passed, failed, used = stopped(at, SIZES, 0.0, margin)
        result = judge_looks(MARGINS, before, after, looks(len(SIZES)))[int(skewed)]
        simulated = Verdict.PASS if passed[0] else Verdict.FAIL if failed[0] else Verdict.INCONCLUSIVE
        assert (result.verdict, result.n_clusters) == (simulated, used[0])
        kinds.add(simulated)
    assert {Verdict.PASS, Verdict.FAIL} <= kinds


def test_what_is_no_number_is_an_error_and_ends_it() -> None:
    before, after = samples(1, 0.001, 0.005, 0.01)
    nll = after.nll.copy()
    nll[3] = np.nan
    perplexity = judge_looks(MARGINS, before, replace(after, nll=nll), looks(1))[0]
    assert perplexity.verdict is Verdict.ERROR and all_decided((perplexity,))
