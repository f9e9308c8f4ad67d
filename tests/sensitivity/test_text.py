"""The text of a scan, and histograms over it."""

import numpy as np
import pytest
import torch

from quantflow.data.windows import PACKED, Windows, make_windows
from quantflow.sensitivity.histograms import OutputHistograms
from quantflow.sensitivity.text import ScanText, scan_text

KEY = ("model.layers.0.down", "int4")


def windows(lengths: list[int], document: list[int], scored_from: list[int] | None = None) -> Windows:
    pieces = [np.arange(length, dtype=np.int32) for length in lengths]
    return make_windows(pieces, document, scored_from)


def made(*args: object, tokens: int = 10_000) -> ScanText:
    text = scan_text(windows(*args), tokens, batch_tokens=64)  # type: ignore[arg-type]
    assert text is not None
    return text


def test_windows_are_cut_and_lie_evenly_among_all() -> None:
    text = made([600] * 10, list(range(10)), tokens=4 * 512)
    assert text.tokens == 4 * 512
    assert text.cluster.tolist() == [1, 3, 6, 8]


def test_windows_in_which_nothing_would_be_scored_are_left_out() -> None:
    # The third scores from where it is cut; one token alone is predicted by nothing.
    text = made([20, 1, 600, 30], [0, 1, 2, 3], [1, 1, 512, 5])
    assert text.cluster.tolist() == [0, 3]
    assert text.positions.tolist() == [19, 25]


def test_one_window_is_too_few_to_compare_halves() -> None:
    assert scan_text(windows([20, 1], [0, 1]), 100, 64) is None


def test_packed_windows_are_clusters_of_their_own_and_documents_hold_together() -> None:
    packed = made([10, 10, 10, 10], [PACKED] * 4)
    assert len(set(packed.cluster.tolist())) == 4
    sums = np.array([1.0, 1.0, 5.0, 5.0]) * 9
    by_window = packed.interval(sums)
    by_document = made([10, 10, 10, 10], [0, 0, 1, 1]).interval(sums)
    assert by_window is not None
    assert by_document is not None
    assert by_document[1] - by_document[0] > by_window[1] - by_window[0]
    assert made([10, 10], [0, 0]).interval(np.ones(2)) is None


def test_means_and_halves_are_per_scored_position() -> None:
    text = made([11, 21, 11, 21], [0, 1, 2, 3])
    sums = np.array([10.0, 20.0, 30.0, 60.0])
    assert text.mean(sums) == 2.0
    assert text.halves(sums) == (1.0, 3.0)


def test_sums_by_window_follow_rows_that_were_sorted_by_length() -> None:
    text = made([4, 9, 6], [0, 1, 2])
    sums = np.zeros(3)
    for batch in text.batches:
        lengths = batch.lengths - batch.scored_from
        values = np.repeat(text.window_of_row(batch), lengths).astype(np.float64)
        sums += text.by_window(batch, values)
    assert sums.tolist() == [0 * 3, 1 * 8, 2 * 5]


@pytest.fixture
def outputs() -> tuple[ScanText, torch.Tensor]:
    text = made([8, 8], [0, 1])
    assert len(text.batches) == 1
    return text, torch.randn(2, 8, 50, generator=torch.Generator().manual_seed(0))


def test_histograms_of_the_same_outputs_are_equal(outputs: tuple[ScanText, torch.Tensor]) -> None:
    text, y = outputs
    histograms = OutputHistograms(text)
    histograms.add(KEY, "mlp.down_proj", 0, y, torch.zeros_like(y))
    assert histograms.kl(KEY) == (0, 0, 0)


def test_histograms_do_not_see_outputs_that_trade_places_and_see_others_that_move(
    outputs: tuple[ScanText, torch.Tensor],
) -> None:
    text, y = outputs
    for delta, moved in ((y.flip(-1) - y, False), (0.5 * y, True)):
        histograms = OutputHistograms(text)
        histograms.add(KEY, "mlp.down_proj", 0, y, delta)
        whole, first, second = histograms.kl(KEY)
        assert (whole > 0.01) is moved
        assert (min(first, second) > 0.01) is moved
