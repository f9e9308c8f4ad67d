"""What two lists of likeliest tokens say of a KL: at most the truth, and all of it from whole lists."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quantflow.measure.topk import NO_TOKEN, TopK, kl_lower_bound, load_topk, save_topk

POSITIONS, VOCABULARY = 40, 50


def log_softmax(logits: NDArray[Any]) -> NDArray[Any]:
    log_p: NDArray[Any] = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return log_p


def likeliest(log_p: NDArray[Any], k: int) -> TopK:
    ids = np.argsort(-log_p, axis=-1)[:, :k]
    return TopK.of(ids.tolist(), np.take_along_axis(log_p, ids, -1).tolist())


@pytest.fixture
def pair() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    random = np.random.default_rng(3)
    logits = 3 * random.normal(size=(POSITIONS, VOCABULARY))
    return log_softmax(logits), log_softmax(logits + random.normal(size=logits.shape))


def test_the_bound_never_exceeds_the_kl_and_grows_with_the_lists(
    pair: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> None:
    log_p, log_q = pair
    kl = (np.exp(log_p) * (log_p - log_q)).sum(-1)
    means = []
    for k in (1, 2, 5, 20, VOCABULARY):
        bound = kl_lower_bound(likeliest(log_p, k), likeliest(log_q, k))
        assert (bound <= kl + 1e-6).all()
        assert (bound >= 0).all()
        means.append(bound.mean())
    assert means == sorted(means)
    assert means[-1] == pytest.approx(kl.mean(), rel=1e-5)


@pytest.mark.parametrize("rest_p", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("rest_q", [1e-2, 1e-5, 1e-8, 1e-12])
def test_rounding_to_float32_does_not_lift_the_bound_above_the_kl(rest_p: float, rest_q: float) -> None:
    logits = [np.full((1, VOCABULARY), np.log(rest / (VOCABULARY - 1))) for rest in (rest_p, rest_q)]
    for row in logits:
        row[0, 0] = 0.0
    log_p, log_q = map(log_softmax, logits)
    rounded = [likeliest(log_softmax(row.astype(np.float32)), 1) for row in logits]
    assert kl_lower_bound(*rounded) <= (np.exp(log_p) * (log_p - log_q)).sum() + 1e-15


def test_equal_models_have_a_bound_of_nothing(
    pair: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> None:
    same = likeliest(pair[0], 5)
    assert kl_lower_bound(same, same) == pytest.approx(np.zeros(POSITIONS), abs=1e-12)


def test_lists_without_a_token_in_common_say_nothing() -> None:
    one, other = TopK.of([[1, 2]], [[-0.1, -3.0]]), TopK.of([[3, 4]], [[-0.1, -3.0]])
    assert kl_lower_bound(one, other) == pytest.approx([0.0])


def test_a_certain_token_leaves_no_infinity() -> None:
    one, other = TopK.of([[1]], [[0.0]]), TopK.of([[1]], [[-2.0]])
    assert kl_lower_bound(one, other) == pytest.approx([2.0], rel=1e-3)


def test_rows_of_other_lengths_are_filled_and_come_back_from_disk(tmp_path: Path) -> None:
    saved = TopK.of([[4, 2], [7, 1, 3]], [[-1.0, -2.0], [-1.0, -2.0, -9.0]])
    save_topk(tmp_path, saved)
    read = load_topk(tmp_path)
    assert read.ids.tolist() == [[4, 2, NO_TOKEN], [7, 1, 3]]
    assert read.top1.tolist() == [4, 7]
    assert kl_lower_bound(read, read) == pytest.approx([0.0, 0.0], abs=1e-6)
