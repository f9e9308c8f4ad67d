"""How far two texts' tokens are apart, and what of it is chance."""

import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray

from quantflow.drift import distance
from quantflow.drift.distance import count_tokens, js_bits, token_difference
from quantflow.drift.record import Difference

VOCABULARY = 300
Document = NDArray[np.int32]


def text(
    rng: np.random.Generator, documents: int, weights: NDArray[np.float64], length: int = 60
) -> list[Document]:
    """Documents that each have a distribution of their own, around `weights`."""
    drawn = [rng.dirichlet(weights * 200 + 1e-6) for _ in range(documents)]
    return [rng.choice(VOCABULARY, size=length, p=p).astype(np.int32) for p in drawn]


def zipf(shift: int = 0) -> NDArray[np.float64]:
    weights = 1 / (1 + np.arange(VOCABULARY))
    return np.roll(weights / weights.sum(), shift)


def difference(calibration: list[Document], reference: list[Document]) -> Difference:
    groups = range(len(calibration)), range(len(reference))
    return token_difference(count_tokens(calibration, reference, *groups))


def test_the_divergence_is_that_of_the_definition() -> None:
    # ½·(1·log₂(1/.75)) + ½·(.5·log₂(.5/.75) + .5·log₂(.5/.25)) by hand.
    assert js_bits(np.array([1.0, 0.0]), np.array([2.0, 2.0])) == pytest.approx(0.311278, abs=1e-6)
    assert js_bits(np.array([3.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(1.0)


def test_samples_of_one_text_differ_by_the_floor_and_no_more() -> None:
    rng = np.random.default_rng(1)
    found = difference(text(rng, 60, zipf()), text(rng, 40, zipf()))
    assert found.js > 0.02  # as counted they differ: there are few tokens
    assert not found.is_found
    assert found.ci_low is not None and found.ci_high is not None
    assert found.ci_low < 0 < found.ci_high
    assert found.p_value > 0.05


def test_another_text_is_told_from_it() -> None:
    rng = np.random.default_rng(2)
    found = difference(text(rng, 60, zipf()), text(rng, 40, zipf(3)))
    assert found.is_found and found.p_value < 0.01
    truth = float(js_bits(zipf(), zipf(3)))
    assert found.ci_low is not None and found.ci_high is not None
    assert found.ci_low < truth < found.ci_high
    assert abs(found.excess - truth) < abs(found.js - truth)  # the floor takes off what is chance


def test_nothing_in_common_is_one_bit() -> None:
    own = [np.arange(10, dtype=np.int32) for _ in range(30)]
    found = difference(own, [document + 10 for document in own])
    assert found.js == pytest.approx(1.0)


def test_the_interval_is_as_wide_as_repeated_samples_vary_and_covers_the_truth() -> None:
    rng = np.random.default_rng(3)
    truth = float(js_bits(zipf(), zipf(3)))
    runs = [difference(text(rng, 40, zipf()), text(rng, 40, zipf(3))) for _ in range(40)]
    spread = float(np.std([run.excess for run in runs], ddof=1))
    assert np.mean([run.std_error or 0 for run in runs]) == pytest.approx(spread, rel=0.35)
    # Of 40 runs 95 % are 38 on either side; three standard errors of that are 4.
    bounds = [(run.ci_low or 0, run.ci_high or 0) for run in runs]
    assert sum(high > truth for _, high in bounds) >= 34
    assert sum(low < truth for low, _ in bounds) >= 34


def test_the_upper_bound_holds_where_the_floor_takes_off_too_much() -> None:
    rng = np.random.default_rng(6)
    own = 1 / np.arange(1, 3001) / np.sum(1 / np.arange(1, 3001))  # most tokens are rare
    other = 0.7 * own + 0.3 * rng.permutation(own)
    truth = float(js_bits(own, other))
    for _ in range(6):
        texts = [[rng.choice(3000, 60, p=p).astype(np.int32) for _ in range(30)] for p in (own, other)]
        found = difference(*texts)
        assert found.ci_high is not None and found.ci_high > truth


def test_near_duplicates_are_one_document() -> None:
    rng = np.random.default_rng(4)
    calibration, reference = text(rng, 40, zipf()), text(rng, 40, zipf())
    found = token_difference(count_tokens(calibration, reference, range(40), [0] * 40))
    assert found.n_clusters == 1
    assert found.std_error is None and found.ci_high is None  # one document says nothing of its own spread


def test_equal_texts_give_equal_figures() -> None:
    texts = [text(np.random.default_rng(5), 40, zipf(shift)) for shift in (0, 2)]
    assert difference(*texts) == difference(*texts)


def test_many_short_documents_are_dealt_out_a_few_times_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [np.array([number % 3], dtype=np.int32) for number in range(2000)]
    counted = count_tokens(texts[:900], texts[900:], range(900), range(1100))
    whole = token_difference(counted)
    at_once = 1 << 15
    monkeypatch.setattr(distance, "_AT_ONCE", at_once)
    tracemalloc.start()
    in_pieces = token_difference(counted)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert in_pieces == whole
    assert peak < 8 * 8 * at_once  # a few arrays of eight bytes a place
