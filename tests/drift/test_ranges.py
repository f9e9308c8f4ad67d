"""What of a layer's inputs is beyond what calibration has seen."""

import torch
from torch import nn

from quantflow.drift.ranges import FIRST, PRODUCTION, SECOND, RangeWatcher, Seen

WHOLE = torch.ones(1, 2, dtype=torch.bool)


def watched(
    parts: list[tuple[int, list[list[float]]]],
    real: torch.Tensor = WHOLE,
    ranges: tuple[torch.Tensor, torch.Tensor, int] | None = None,
) -> Seen:
    linear = nn.Linear(2, 1, bias=False)
    watcher = RangeWatcher(linear, [(part, real) for part, _ in parts], ranges)
    for _, rows in parts:
        linear(torch.tensor([rows]))
    return watcher.finish()


def test_values_beyond_their_channel_and_beyond_the_whole_input_are_counted() -> None:
    seen = watched(
        [
            (FIRST, [[0.0, -1.0], [1.0, 2.0]]),
            (SECOND, [[0.5, 3.0], [-0.5, 0.0]]),
            (PRODUCTION, [[2.0, 0.0], [0.0, 8.0]]),
        ]
    )
    assert seen.floor_outside == 2  # 3 and -0.5, of the ranges of the first half
    assert (seen.outside, seen.clipped, seen.values) == (2, 1, 4)  # 2 in a channel that went to 1; 8 in all
    assert seen.reach == 8 / 3
    assert seen.range_tokens == 4


def test_padding_is_not_looked_at() -> None:
    real = torch.tensor([[True, False]])
    seen = watched([(FIRST, [[0.0, 1.0], [99.0, 99.0]]), (PRODUCTION, [[0.0, 1.0], [-99.0, 99.0]])], real)
    assert (seen.outside, seen.values, seen.range_tokens) == (0, 2, 1)


def test_calibrated_ranges_go_before_those_of_the_sample() -> None:
    given = torch.tensor([-10.0, -10.0]), torch.tensor([10.0, 10.0]), 4096
    seen = watched([(FIRST, [[0.0, 0.0], [1.0, 1.0]]), (PRODUCTION, [[9.0, 9.0], [11.0, 0.0]])], ranges=given)
    assert (seen.outside, seen.clipped, seen.range_tokens) == (1, 1, 4096)
