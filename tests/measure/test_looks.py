"""Documents dealt out to looks."""

import numpy as np

from quantflow.data.documents import Document
from quantflow.data.windows import Windows, make_windows, some_windows
from quantflow.measure.batches import make_batches
from quantflow.measure.looks import batches_in_looks, planned_looks


def evaluation(documents: int = 70) -> tuple[Windows, list[Document]]:
    """Every third document of two windows, every fifth a near duplicate of the one before it."""
    rng = np.random.default_rng(5)
    pieces, owners = [], []
    for number in range(documents):
        for _ in range(1 + (number % 3 == 0)):
            pieces.append(rng.integers(0, 100, size=rng.integers(3, 12)).astype(np.int32))
            owners.append(number)
    kept = [
        Document(str(i), "a", "evaluation", 9, i - 1 if i % 5 == 4 else i if i % 5 == 3 else None)
        for i in range(documents)
    ]
    return make_windows(pieces, owners), kept


def test_every_window_comes_in_once_and_near_duplicates_together() -> None:
    windows, documents = evaluation()
    looks = planned_looks(windows, documents, seed=1)
    assert sorted(looks.until(len(looks.sizes)).tolist()) == list(range(len(windows)))
    assert looks.sizes[-1] == 70 - 14 and looks.sizes[0] >= 30
    for chosen in looks.windows:
        owners = set(windows.document[chosen].tolist())
        assert all((owner + 1 in owners) for owner in owners if owner % 5 == 3)
    counts = [len({int(d) - (d % 5 == 4) for d in windows.document[c]}) for c in looks.windows]
    assert np.cumsum(counts).tolist() == list(looks.sizes)


def test_the_order_is_random_and_the_seed_s() -> None:
    windows, documents = evaluation()
    first = planned_looks(windows, documents, seed=1).windows[0]
    assert first.tolist() == planned_looks(windows, documents, seed=1).windows[0].tolist()
    assert first.tolist() != planned_looks(windows, documents, seed=2).windows[0].tolist()
    assert np.abs(np.diff(windows.document[first])).max() > 1  # not the first documents of the file


def test_the_baseline_s_batches_are_those_that_each_look_of_an_artifact_has() -> None:
    windows, documents = evaluation()
    looks = planned_looks(windows, documents, seed=1)
    whole = iter(batches_in_looks(windows, looks, 32))
    for chosen in looks.windows:
        part, at = some_windows(windows, chosen)
        for batch in make_batches(part, 32):
            mine = next(whole)
            assert (mine.ids == batch.ids).all() and (mine.starts == at[batch.starts]).all()
    assert next(whole, None) is None


def test_positions_of_some_windows_are_where_they_are_among_all() -> None:
    windows, _ = evaluation()
    part, at = some_windows(windows, np.array([5, 2]))
    assert [window.tolist() for window in part] == [list(windows)[i].tolist() for i in (5, 2)]
    begins = np.concatenate([[0], np.cumsum(windows.scored_counts)])
    assert at.tolist() == [*range(begins[5], begins[6]), *range(begins[2], begins[3])]
