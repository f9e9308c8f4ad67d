"""How much of the evaluation stands word for word in the calibration."""

import numpy as np

from quantflow.data.overlap import PASSAGE, overlap
from quantflow.data.windows import PACKED, Windows, make_windows


def windows(*pieces: "np.ndarray[tuple[int], np.dtype[np.int32]]") -> Windows:
    return make_windows(list(pieces), [PACKED] * len(pieces))


def tokens(seed: int, count: int) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    return np.random.default_rng(seed).integers(0, 50_000, count).astype(np.int32)


def test_texts_that_share_nothing_do_not_overlap() -> None:
    assert overlap(windows(tokens(0, 500)), [windows(tokens(1, 5000))]) == 0


def test_a_copied_passage_counts_with_all_its_tokens_wherever_it_stands() -> None:
    passage = tokens(2, 100)
    evaluation = windows(np.concatenate([tokens(0, 150), passage, tokens(1, 150)]), tokens(7, 100))
    calibration = windows(tokens(3, 777), np.concatenate([tokens(4, 33), passage, tokens(5, 90)]))
    assert overlap(evaluation, [calibration]) == 100 / 500


def test_what_several_sets_have_counts_once() -> None:
    first, second = tokens(2, 60), tokens(3, 60)
    evaluation = windows(np.concatenate([first, tokens(0, 80), second]))
    used = [windows(first), windows(np.concatenate([second, first]))]
    assert overlap(evaluation, used) == 120 / 200


def test_a_shared_phrase_shorter_than_a_passage_does_not_count() -> None:
    phrase = tokens(2, PASSAGE - 1)
    longer = tokens(2, PASSAGE)
    for piece, share in ((phrase, 0.0), (longer, PASSAGE / 200)):
        evaluation = windows(np.concatenate([piece, tokens(0, 200 - len(piece))]))
        assert overlap(evaluation, [windows(np.concatenate([tokens(3, 60), piece]))]) == share


def test_a_passage_that_two_windows_share_between_them_is_none() -> None:
    passage = tokens(2, PASSAGE)
    split = windows(passage[:30], passage[30:])
    assert overlap(windows(passage), [split]) == 0
    assert overlap(split, [windows(passage)]) == 0


def test_nothing_overlaps_with_nothing() -> None:
    assert overlap(windows(), [windows(tokens(0, 99))]) == 0
    assert overlap(windows(tokens(0, 99)), [windows()]) == 0
