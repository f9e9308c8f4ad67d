"""Codes do not depend on the number of threads: sums have an order that these do not change."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from quantflow.calibrate.statistics import InputCollector
from quantflow.quantize.awq import search_grid, search_scale


@pytest.fixture
def threads() -> Iterator[None]:
    """Leaves the number of threads as it was."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def chosen(count: int, seed: int) -> list[Tensor]:
    """Statistics and both searches of a linear large enough that torch shares the work out."""
    torch.set_num_threads(count)
    generator = torch.Generator().manual_seed(seed)
    x, weight = (torch.randn(rows, 512, generator=generator) for rows in (512, 128))
    linear = nn.Linear(512, 128)
    collector = InputCollector(linear, "example")
    with torch.no_grad():
        linear(x)
    found = collector.finish()
    scale = search_scale(weight, found.gram, found.mean_abs, bits=4, group_size=64)
    grid = search_grid(weight, found.gram, bits=4, group_size=64)
    return [found.gram, found.mean_abs, scale.scale, torch.tensor(scale.loss), grid.scales, grid.zero_points]


# A sum in another order ends in the same bits now and then.
@pytest.mark.parametrize("seed", range(4))
def test_statistics_and_searches_are_bit_equal_for_one_and_for_two_threads(threads: None, seed: int) -> None:
    for one, two in zip(chosen(1, seed), chosen(2, seed), strict=True):
        assert torch.equal(one, two)
