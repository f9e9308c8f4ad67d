from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from quantflow.data.cut import cut_documents, pack_documents
from quantflow.data.windows import PACKED, load_windows, save_windows, scored_documents

EOS = 99
token_lists = st.lists(st.integers(0, 20), min_size=1, max_size=30)
documents_strategy = st.lists(token_lists, max_size=12).map(
    lambda lists: [np.array(tokens, dtype=np.int32) for tokens in lists]
)


def ids(*tokens: int) -> NDArray[np.int32]:
    return np.array(tokens, dtype=np.int32)


def test_a_document_is_cut_into_consecutive_windows_that_never_cross_into_the_next() -> None:
    cut = cut_documents([ids(1, 2, 3, 4, 5), ids(6, 7)], indices=[4, 9], length=3)
    assert [window.tolist() for window in cut.windows] == [[1, 2, 3], [4, 5], [6, 7]]
    assert cut.windows.document.tolist() == [4, 4, 9]


def test_a_window_of_one_token_scores_nothing_and_is_dropped_and_counted() -> None:
    cut = cut_documents([ids(1, 2, 3, 4), ids(5)], indices=[0, 1], length=3)
    assert [window.tolist() for window in cut.windows] == [[1, 2, 3]]
    assert (cut.too_short_windows, cut.too_short.tolist()) == (2, [1, 1])


def test_the_first_token_of_a_window_is_context_and_every_later_one_is_scored() -> None:
    cut = cut_documents([ids(1, 2, 3, 4, 5), ids(6, 7)], indices=[4, 9], length=3)
    assert scored_documents(cut.windows).tolist() == [4, 4, 4, 9]


@given(documents_strategy, st.integers(2, 9))
def test_cutting_neither_loses_nor_invents_a_token(documents: list[NDArray[np.int32]], length: int) -> None:
    cut = cut_documents(documents, indices=range(len(documents)), length=length)
    for i, tokens in enumerate(documents):
        mine = [w for w, owner in zip(cut.windows, cut.windows.document, strict=True) if owner == i]
        together = np.concatenate([ids(), *mine])
        assert together.tolist() == tokens[: cut.used[i]].tolist()
        assert cut.used[i] + cut.too_short[i] == len(tokens)
        assert all(2 <= len(window) <= length for window in mine)


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
    windows = cut_documents([ids(1, 2, 3, 4, 5), ids(6, 7)], indices=[4, 9], length=3).windows
    for name in ("first", "second"):
        save_windows(tmp_path / name, windows)
    again = load_windows(tmp_path / "first")
    assert len(again) == 3
    assert [window.tolist() for window in again] == [window.tolist() for window in windows]
    assert again.document.tolist() == windows.document.tolist()
    types = [str(array.dtype) for array in (again.tokens, again.offsets, again.document)]
    assert types == ["int32", "int64", "int32"]
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_no_windows_can_be_written_and_read_back(tmp_path: Path) -> None:
    save_windows(tmp_path / "none", cut_documents([], indices=[], length=3).windows)
    assert len(load_windows(tmp_path / "none")) == 0
