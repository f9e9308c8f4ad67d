"""Where distributions diverge."""

import numpy as np
import pytest

from quantflow.gate.divergence import Divergence
from quantflow.measure.divergence_detail import CONTEXT, WORST, by_confidence, worst_positions
from quantflow.measure.measurement import Samples
from tests.measure.inputs import evaluation_windows

WINDOWS = evaluation_windows()


def samples() -> Samples:
    document = np.repeat(WINDOWS.document, WINDOWS.scored_counts)
    kl = np.linspace(0, 1, document.size)
    confidence = np.linspace(0.05, 1.0, document.size).astype(np.float32)
    tokens = np.arange(document.size, dtype=np.int32)
    return Samples(
        document,
        kl,
        kl=kl,
        top1=confidence > 0.5,
        confidence=confidence,
        likeliest_before=tokens,
        likeliest=tokens + 1,
    )


def test_every_position_is_in_one_range_of_confidence_and_all_kl_in_them() -> None:
    ranges = by_confidence(samples())
    assert sum(one.positions for one in ranges) == samples().document.size
    assert sum(one.share_of_kl for one in ranges) == pytest.approx(1)
    assert [one.top1_agreement for one in ranges][:2] == [0.0, pytest.approx(0.0, abs=0.05)]
    assert ranges[-1].high == 1.0 and ranges[-1].top1_agreement == 1.0


def test_the_worst_positions_are_of_different_documents_with_what_came_before() -> None:
    worst = worst_positions(samples(), WINDOWS, ["a", "b", "c"], ["x", "y", "z"])
    assert [one.document for one in worst] == ["c", "b", "a"]
    assert len(worst) <= WORST
    last = WINDOWS.tokens[WINDOWS.offsets[-2] : WINDOWS.offsets[-1]]
    assert worst[0].target == last[-1]  # KL rises with position
    assert worst[0].context == tuple(last[:-1][-CONTEXT:])
    assert worst[0].slice == "z"
    (highest,) = map(int, np.flatnonzero(samples().kl == worst[0].kl))
    assert (worst[0].likeliest_before, worst[0].likeliest) == (highest, highest + 1)


def test_text_can_be_left_out() -> None:
    worst = worst_positions(samples(), WINDOWS, ["a", "b", "c"], ["x", "y", "z"])
    hidden = Divergence(llama_cpp=None, by_confidence=(), worst=worst).without_text()
    left = {(one.target, one.context, one.likeliest_before, one.likeliest) for one in hidden.worst}
    assert left == {(None, (), None, None)}
    assert [one.kl for one in hidden.worst] == [one.kl for one in worst]


def test_what_was_not_measured_is_left_out() -> None:
    alone = Samples(samples().document, samples().nll)
    assert by_confidence(alone) == () == worst_positions(alone, WINDOWS, [], [])
