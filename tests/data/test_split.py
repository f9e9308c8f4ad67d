import random
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantflow.data.documents import SPLITS, SplitName
from quantflow.data.encode import TokenizedDocument
from quantflow.data.split import assign_splits, drop_copies

SHARES: dict[SplitName, float] = {"calibration": 0.5, "selection": 0.25, "evaluation": 0.25}


def document(content: int, part: str = "a", name: str | None = None) -> TokenizedDocument:
    tokens = np.array([content, content + 1], dtype=np.int32)
    return TokenizedDocument(name or f"d{content}", part, f"{content:064x}", tokens)


corpora = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 10**6)), unique_by=lambda x: x[1])
shares = st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(1, 9)).map(
    lambda parts: {split: part / sum(parts) for split, part in zip(SPLITS, parts, strict=True)}
)


def test_of_exact_copies_one_is_kept_and_the_others_point_at_it() -> None:
    first, copy, other = document(1, "b", "x"), document(1, "a", "z"), document(2, "a", "y")
    corpus = drop_copies([first, copy, other])
    assert corpus.documents == (other, copy)
    assert corpus.copies == ((first, 1),)


def test_copies_are_known_by_their_tokens_whatever_text_they_came_from() -> None:
    text, chat = (TokenizedDocument(n, "a", n * 64, np.array([1, 2], dtype=np.int32)) for n in "01")
    assert drop_copies([text, chat]).copies == ((chat, 0),)


def test_documents_that_share_some_tokens_are_no_copies() -> None:
    longer = TokenizedDocument("x", "a", "0" * 64, np.array([1, 2, 3], dtype=np.int32))
    assert drop_copies([document(1), longer]).copies == ()


@given(corpora, st.randoms(use_true_random=False), st.integers(0, 3))
def test_neither_copies_nor_splits_depend_on_the_order_of_documents(
    corpus: list[tuple[str, int]], shuffle: random.Random, seed: int
) -> None:
    documents = [document(content // 2, part, f"{part}{content}") for part, content in corpus]
    kept = drop_copies(documents)
    shuffle.shuffle(documents)
    again = drop_copies(documents)
    assert [d.id for d in again.documents] == [d.id for d in kept.documents]
    assert [(d.id, i) for d, i in again.copies] == [(d.id, i) for d, i in kept.copies]
    assert assign_splits(again.documents, SHARES, seed) == assign_splits(kept.documents, SHARES, seed)


@given(corpora, shares, st.integers(0, 3))
def test_every_document_is_in_one_split_and_shares_hold_overall_and_in_every_slice(
    corpus: list[tuple[str, int]], asked: dict[SplitName, float], seed: int
) -> None:
    documents = [document(content, part) for part, content in corpus]
    splits = assign_splits(documents, asked, seed)
    assert len(splits) == len(documents)
    by_slice: dict[str, Counter[SplitName]] = defaultdict(Counter)
    for d, split in zip(documents, splits, strict=True):
        by_slice[d.slice][split] += 1
    for split in SPLITS:
        for counts in by_slice.values():
            assert abs(counts[split] - asked[split] * counts.total()) < 1 + 1e-9
        total = sum(counts[split] for counts in by_slice.values())
        assert abs(total - asked[split] * len(documents)) < 1
    if asked["selection"] == 0:
        assert "selection" not in splits


def test_many_slices_of_one_document_do_not_all_go_to_the_largest_split() -> None:
    documents = [document(i, f"slice-{i:02}") for i in range(40)]
    assert Counter(assign_splits(documents, SHARES, 0)) == {
        "calibration": 20,
        "selection": 10,
        "evaluation": 10,
    }


def test_the_seed_alone_changes_who_is_where_and_not_how_many() -> None:
    documents = [document(i) for i in range(40)]
    first, second = (assign_splits(documents, SHARES, seed) for seed in (0, 1))
    assert first != second
    assert Counter(first) == Counter(second)


def test_two_documents_go_to_calibration_and_evaluation_which_a_run_cannot_do_without() -> None:
    assert set(assign_splits([document(1), document(2)], SHARES, 0)) == {"calibration", "evaluation"}


clustered = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 7)), min_size=1, max_size=60)


def firsts(groups: list[int]) -> list[int]:
    """For each document the first of its group; group 0 stands for documents without near duplicates."""
    return [i if group == 0 else groups.index(group) for i, group in enumerate(groups)]


@given(clustered, shares, st.integers(0, 3), st.randoms(use_true_random=False))
def test_near_duplicates_go_to_one_split_whatever_the_order_and_everything_has_one(
    corpus: list[tuple[str, int]], asked: dict[SplitName, float], seed: int, shuffle: random.Random
) -> None:
    documents = [document(i, part) for i, (part, _) in enumerate(corpus)]
    groups = [group for _, group in corpus]
    splits = assign_splits(documents, asked, seed, firsts(groups))
    for group in set(groups) - {0}:
        assert len({split for split, of in zip(splits, groups, strict=True) if of == group}) == 1
    if asked["selection"] == 0:
        assert "selection" not in splits
    order = shuffle.sample(range(len(documents)), len(documents))
    shuffled = assign_splits([documents[i] for i in order], asked, seed, firsts([groups[i] for i in order]))
    assert list(shuffled) == [splits[i] for i in order]


def test_near_duplicates_come_to_every_split_as_often_as_other_documents_do() -> None:
    documents = [document(i) for i in range(400)]
    pairs = [i - i % 2 for i in range(80)]
    counts: Counter[SplitName] = Counter()
    for seed in range(10):
        splits = assign_splits(documents, SHARES, seed, pairs + list(range(80, 400)))
        assert Counter(splits) == {"calibration": 200, "selection": 100, "evaluation": 100}
        counts.update(splits[0:80:2])
    for split, share in SHARES.items():
        four_deviations = 4 * (400 * share * (1 - share)) ** 0.5
        assert abs(counts[split] - share * 400) < four_deviations


def test_what_groups_leave_of_the_shares_single_documents_fill() -> None:
    documents = [document(i) for i in range(100)]
    splits = assign_splits(documents, SHARES, 0, [0] * 30 + [30] * 10 + list(range(40, 100)))
    assert {splits[i] for i in range(30)} == {"calibration"}
    assert Counter(splits) == {"calibration": 50, "selection": 25, "evaluation": 25}


def test_a_group_too_large_for_any_split_takes_from_the_others_alike() -> None:
    documents = [document(i) for i in range(100)]
    counts = Counter(assign_splits(documents, SHARES, 0, [0] * 80 + list(range(80, 100))))
    assert counts == {"calibration": 80, "selection": 10, "evaluation": 10}


@pytest.mark.parametrize("changed", ["id", "slice"])
def test_a_document_rank_comes_from_its_content_not_its_name(changed: str) -> None:
    documents = [document(i) for i in range(12)]
    renamed = [
        TokenizedDocument(
            "new" + d.id if changed == "id" else d.id,
            "new" if changed == "slice" else d.slice,
            d.digest,
            d.tokens,
        )
        for d in documents
    ]
    assert assign_splits(documents, SHARES, 0) == assign_splits(renamed, SHARES, 0)
