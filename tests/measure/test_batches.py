"""Batches hold every scored position exactly once, whatever the windows are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quantflow.data.windows import make_windows, scored_documents
from quantflow.measure.batches import make_batches, scored_targets
from tests.measure.inputs import evaluation_windows


@given(
    lengths=st.lists(st.integers(0, 20), max_size=12),
    batch_tokens=st.integers(1, 64),
)
def test_every_scored_position_is_in_one_batch_beside_the_token_that_came(
    lengths: list[int], batch_tokens: int
) -> None:
    windows = evaluation_windows(lengths, list(range(len(lengths))))
    targets = scored_targets(windows)
    assert targets.size == scored_documents(windows).size
    seen = np.zeros(targets.size, dtype=int)
    for batch in make_batches(windows, batch_tokens):
        for row, start, count in batch.scored():
            seen[start : start + count] += 1
            np.testing.assert_array_equal(batch.ids[row, 1 : count + 1], targets[start : start + count])
    assert (seen == 1).all()


@given(lengths=st.lists(st.integers(2, 20), min_size=1, max_size=12), batch_tokens=st.integers(20, 64))
def test_batches_stay_within_their_tokens_padding_included(lengths: list[int], batch_tokens: int) -> None:
    windows = evaluation_windows(lengths, [0] * len(lengths))
    assert all(batch.ids.size <= batch_tokens for batch in make_batches(windows, batch_tokens))


def test_windows_of_like_length_share_a_batch() -> None:
    windows = evaluation_windows([10, 3, 10, 3], [0, 1, 2, 3])
    assert [list(batch.lengths) for batch in make_batches(windows, 20)] == [[10, 10], [3, 3]]


def test_a_window_longer_than_a_batch_is_a_batch_of_its_own() -> None:
    windows = evaluation_windows([50, 4], [0, 1])
    assert [batch.ids.shape for batch in make_batches(windows, 8)] == [(1, 50), (1, 4)]


def test_the_first_token_of_a_window_is_context_and_never_scored() -> None:
    windows = make_windows([np.array([5, 6, 7], np.int32), np.array([8, 9], np.int32)], [0, 1])
    assert scored_targets(windows).tolist() == [6, 7, 9]
    assert scored_documents(windows).tolist() == [0, 0, 1]
