"""Batches hold every scored position exactly once, whatever the windows are."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quantflow.data.windows import Windows, make_windows, scored_documents
from quantflow.measure.batches import make_batches, scored_targets
from tests.measure.inputs import evaluation_windows


def batch_positions(windows: Windows, batch_tokens: int) -> list[int]:
    return [batch.positions for batch in make_batches(windows, batch_tokens)]


@given(
    lengths=st.lists(st.integers(0, 20), max_size=12),
    scored_from=st.lists(st.integers(1, 22), min_size=1, max_size=12),
    batch_tokens=st.integers(1, 64),
)
def test_every_scored_position_is_in_one_batch_beside_the_token_that_came(
    lengths: list[int], scored_from: list[int], batch_tokens: int
) -> None:
    windows = evaluation_windows(lengths, list(range(len(lengths))))
    windows = replace(windows, scored_from=np.resize(np.array(scored_from, np.int32), len(lengths)))
    targets = scored_targets(windows)
    assert targets.size == scored_documents(windows).size == sum(batch_positions(windows, batch_tokens))
    seen = np.zeros(targets.size, dtype=int)
    for batch in make_batches(windows, batch_tokens):
        for row, start, at in batch.scored():
            count = at.stop - at.start
            seen[start : start + count] += 1
            predicted = batch.ids[row, at.start + 1 : at.stop + 1]
            np.testing.assert_array_equal(predicted, targets[start : start + count])
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


def test_of_an_overlapping_window_only_the_new_positions_are_scored() -> None:
    pieces = [np.array([5, 6, 7, 8], np.int32), np.array([7, 8, 9, 10], np.int32)]
    windows = make_windows(pieces, [3, 3], scored_from=[1, 2])
    assert scored_targets(windows).tolist() == [6, 7, 8, 9, 10]
    assert scored_documents(windows).tolist() == [3] * 5
    (batch,) = make_batches(windows, 8)
    assert list(batch.scored()) == [(0, 0, slice(0, 3)), (1, 3, slice(1, 3))]


def test_a_window_in_which_nothing_is_scored_is_in_no_batch() -> None:
    assert make_batches(make_windows([np.array([5, 6], np.int32)], [0], scored_from=[2]), 8) == ()
