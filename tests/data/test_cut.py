from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from quantflow.data.cut import Cut, Cutting, cut_documents, pack_documents
from quantflow.data.windows import PACKED, Windows, load_windows, save_windows, scored_documents

EOS, BOS = 99, 98
token_lists = st.lists(st.integers(0, 20), min_size=1, max_size=30)
documents_strategy = st.lists(token_lists, max_size=12).map(
    lambda lists: [np.array(tokens, dtype=np.int32) for tokens in lists]
)


def ids(*tokens: int) -> NDArray[np.int32]:
    return np.array(tokens, dtype=np.int32)


def cut_into(
    documents: list[NDArray[np.int32]],
    length: int,
    stride: int | None = None,
    bos: int | None = None,
    wanted: int = 10**6,
    seed: int = 0,
    indices: list[int] | None = None,
) -> Cut:
    names = [f"{i:064x}" for i in range(len(documents))]
    where = list(range(len(documents))) if indices is None else indices
    return cut_documents(documents, where, Cutting(length, stride or length, bos), wanted, seed, names)


def scored(windows: Windows) -> list[list[int]]:
    """The scored tokens of each window."""
    return [w[first:].tolist() for w, first in zip(windows, windows.scored_from, strict=True)]


def test_a_document_is_cut_into_consecutive_windows_that_never_cross_into_the_next() -> None:
    cut = cut_into([ids(1, 2, 3, 4, 5), ids(6, 7)], 3, indices=[4, 9])
    assert [window.tolist() for window in cut.windows] == [[1, 2, 3], [4, 5], [6, 7]]
    assert cut.windows.document.tolist() == [4, 4, 9]


def test_a_window_of_one_token_scores_nothing_and_is_dropped_and_counted() -> None:
    cut = cut_into([ids(1, 2, 3, 4), ids(5)], 3)
    assert [window.tolist() for window in cut.windows] == [[1, 2, 3]]
    assert (cut.too_short_windows, cut.too_short.tolist()) == (2, [1, 1])


def test_the_first_token_of_a_window_is_context_and_every_later_one_is_scored() -> None:
    cut = cut_into([ids(1, 2, 3, 4, 5), ids(6, 7)], 3, indices=[4, 9])
    assert scored_documents(cut.windows).tolist() == [4, 4, 4, 9]


@given(documents_strategy, st.integers(2, 9))
def test_cutting_neither_loses_nor_invents_a_token(documents: list[NDArray[np.int32]], length: int) -> None:
    cut = cut_into(documents, length)
    for i, tokens in enumerate(documents):
        mine = [w for w, owner in zip(cut.windows, cut.windows.document, strict=True) if owner == i]
        together = np.concatenate([ids(), *mine])
        assert together.tolist() == tokens[: cut.used[i]].tolist()
        assert cut.used[i] + cut.too_short[i] == len(tokens)
        assert all(2 <= len(window) <= length for window in mine)


def test_overlapping_windows_score_each_token_once_with_the_earlier_ones_as_context() -> None:
    cut = cut_into([np.arange(10, dtype=np.int32)], length=6, stride=2)
    assert [w.tolist() for w in cut.windows] == [[*range(6)], [*range(2, 8)], [*range(4, 10)]]
    assert scored(cut.windows) == [[1, 2, 3, 4, 5], [6, 7], [8, 9]]


def test_with_bos_the_first_token_of_a_document_is_scored_and_that_of_a_later_window_is_not() -> None:
    cut = cut_into([ids(1, 2, 3, 4, 5, 6)], length=4, bos=BOS)
    assert [w.tolist() for w in cut.windows] == [[BOS, 1, 2, 3], [BOS, 4, 5, 6]]
    assert scored(cut.windows) == [[1, 2, 3], [5, 6]]
    assert (cut.bos_added, cut.used.tolist()) == (2, [6])


def test_a_document_that_begins_with_bos_does_not_get_another() -> None:
    cut = cut_into([ids(BOS, 1, 2, 3, 4, 5)], length=4, bos=BOS)
    assert [w.tolist() for w in cut.windows] == [[BOS, 1, 2, 3], [BOS, 4, 5]]
    assert scored(cut.windows) == [[1, 2, 3], [5]]
    assert (cut.bos_added, cut.used.tolist()) == (1, [6])


def test_overlapping_windows_with_bos_begin_with_it_and_score_what_is_new() -> None:
    cut = cut_into([ids(1, 2, 3, 4, 5, 6, 7)], length=5, stride=2, bos=BOS)
    assert [w.tolist() for w in cut.windows] == [[BOS, 1, 2, 3, 4], [BOS, 3, 4, 5, 6], [BOS, 5, 6, 7]]
    assert scored(cut.windows) == [[1, 2, 3, 4], [5, 6], [7]]


@given(documents_strategy, st.integers(3, 9), st.integers(1, 9), st.sampled_from([BOS, None]))
def test_windows_stay_within_their_length_and_score_no_token_twice(
    documents: list[NDArray[np.int32]], length: int, stride: int, bos: int | None
) -> None:
    stride = min(stride, length)
    marked = [np.arange(len(tokens), dtype=np.int32) + 1000 * i for i, tokens in enumerate(documents)]
    cut = cut_into(marked, length, stride, bos)
    together = [token for part in scored(cut.windows) for token in part]
    assert len(set(together)) == len(together) == cut.windows.scored_counts.sum()
    assert all(len(window) <= length for window in cut.windows)
    assert all((window[0] == BOS) == (bos is not None) for window in cut.windows)
    assert (cut.used + cut.too_short).tolist() == [len(tokens) for tokens in documents]
    if stride <= length - 2:  # every window overlaps: only a first token without BOS goes unscored
        assert len(together) == sum(len(tokens) - (bos is None) for tokens in documents)


@given(documents_strategy, st.integers(3, 9), st.integers(1, 9), st.integers(1, 9))
def test_of_more_windows_than_wanted_some_are_drawn_and_every_token_is_accounted_for(
    documents: list[NDArray[np.int32]], length: int, stride: int, wanted: int
) -> None:
    cut = cut_into(documents, length, min(stride, length), wanted=wanted)
    assert len(cut.windows) == min(wanted, cut.available)
    lengths = [len(tokens) for tokens in documents]
    assert (cut.used + cut.undrawn + cut.too_short).tolist() == lengths
    assert (cut.undrawn >= 0).all()


def test_the_draw_of_windows_follows_the_seed_and_is_not_the_first_of_them() -> None:
    documents = [np.arange(100 * i, 100 * i + 20, dtype=np.int32) for i in range(50)]
    drawn = [[w.tolist() for w in cut_into(documents, 5, wanted=20, seed=s).windows] for s in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(first == sorted(first) for first in drawn)  # in the order of the documents
    assert all(max(window[0] for window in first) > 2500 for first in drawn)


@given(st.integers(1, 60), st.integers(3, 9), st.integers(1, 9), st.sampled_from([BOS, None]))
def test_windows_are_counted_as_they_are_cut(tokens: int, length: int, stride: int, bos: int | None) -> None:
    cutting = Cutting(length, min(stride, length), bos)
    cut = cut_documents([np.zeros(tokens, dtype=np.int32)], [0], cutting, 10**6, 0, ["x"])
    assert cutting.count(tokens) == cut.available + cut.too_short_windows


def test_packing_puts_eos_between_documents_but_not_after_one_that_ends_with_it() -> None:
    cut = pack_documents([ids(1, 2), ids(3, EOS), ids(4, 5)], EOS, length=7, wanted=1, seed=0)
    assert [window.tolist() for window in cut.windows] == [[1, 2, EOS, 3, EOS, 4, 5]]
    assert (cut.separators, cut.used.tolist()) == (1, [2, 2, 2])
    assert cut.windows.document.tolist() == [PACKED]


def test_packing_puts_no_eos_after_the_last_document() -> None:
    assert pack_documents([ids(1, 2), ids(3)], EOS, length=5, wanted=1, seed=0).available == 0
    assert pack_documents([ids(1, 2), ids(3)], EOS, length=4, wanted=1, seed=0).available == 1


def test_packing_without_an_eos_token_puts_documents_side_by_side() -> None:
    cut = pack_documents([ids(1, 2), ids(3)], None, length=3, wanted=1, seed=0)
    assert [window.tolist() for window in cut.windows] == [[1, 2, 3]]


def test_nothing_is_scored_in_packed_windows() -> None:
    assert scored_documents(pack_documents([ids(1, 2, 3, 4)], None, 2, 2, seed=0).windows).size == 0


def test_only_the_last_incomplete_window_is_dropped_and_it_is_counted() -> None:
    cut = pack_documents([ids(1, 2, 3), ids(4, 5)], None, length=2, wanted=9, seed=0)
    assert [window.tolist() for window in cut.windows] == [[1, 2], [3, 4]]
    assert cut.incomplete.tolist() == [0, 1]
    assert cut.available == 2


def test_windows_are_drawn_by_the_seed_not_taken_from_the_front() -> None:
    documents = [np.arange(200, dtype=np.int32)]
    drawn = {
        seed: [int(w[0]) for w in pack_documents(documents, None, 2, 10, seed).windows] for seed in range(5)
    }
    assert all(len(set(first)) == 10 for first in drawn.values())
    assert all(max(first) > 100 for first in drawn.values())
    assert len({tuple(first) for first in drawn.values()}) == 5
    assert drawn[0] == [int(w[0]) for w in pack_documents(documents, None, 2, 10, 0).windows]


@given(documents_strategy, st.integers(2, 9), st.integers(1, 9), st.sampled_from([EOS, None]))
def test_packing_neither_loses_nor_invents_a_token(
    documents: list[NDArray[np.int32]], length: int, wanted: int, eos: int | None
) -> None:
    cut = pack_documents(documents, eos, length, wanted, seed=3)
    lengths = [len(tokens) for tokens in documents]
    assert (cut.used + cut.incomplete + cut.undrawn).tolist() == lengths
    assert len(cut.windows) == min(wanted, cut.available)
    assert all(len(window) == length for window in cut.windows)
    assert len(cut.windows.tokens) == cut.used.sum() + cut.separators
    assert cut.incomplete.sum() < length
    everything = pack_documents(documents, eos, length, wanted=10**6, seed=3)
    assert everything.undrawn.sum() == 0
    plain = [token for token in everything.windows.tokens.tolist() if token != EOS]
    assert plain == np.concatenate([ids(), *documents]).tolist()[: len(plain)]


def test_windows_read_back_are_the_windows_written(tmp_path: Path) -> None:
    windows = cut_into([ids(1, 2, 3, 4, 5), ids(6, 7)], 3, indices=[4, 9]).windows
    for name in ("first", "second"):
        save_windows(tmp_path / name, windows)
    again = load_windows(tmp_path / "first")
    assert len(again) == 3
    assert [window.tolist() for window in again] == [window.tolist() for window in windows]
    assert again.document.tolist() == windows.document.tolist()
    assert again.scored_from.tolist() == [1, 1, 1]
    arrays = (again.tokens, again.offsets, again.document, again.scored_from)
    assert [str(array.dtype) for array in arrays] == ["int32", "int64", "int32", "int32"]
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_no_windows_can_be_written_and_read_back(tmp_path: Path) -> None:
    save_windows(tmp_path / "none", cut_into([], 3).windows)
    assert len(load_windows(tmp_path / "none")) == 0
