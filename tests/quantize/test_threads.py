"""Codes do not depend on the number of threads: sums have an order that these do not change."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from quantflow.calibrate.statistics import InputCollector
from quantflow.quantize.awq import search_scale
from quantflow.quantize.block import diagonal_blocks
from quantflow.quantize.factor import factorize
from quantflow.quantize.gptq import quantize_gptq
from quantflow.quantize.grid import GridKind, search_grid
from quantflow.quantize.search_space import SHRINKAGE, SHRINKS


@pytest.fixture
def threads() -> Iterator[None]:
    """Leaves the number of threads as it was."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def chosen(count: int, seed: int) -> list[Tensor]:
    """Statistics, searches and GPTQ of a linear large enough that torch shares the work out."""
    torch.set_num_threads(count)
    generator = torch.Generator().manual_seed(seed)
    x, weight = (torch.randn(rows, 512, generator=generator) for rows in (512, 128))
    linear, kind = nn.Linear(512, 128), GridKind(4)
    collector = InputCollector(linear, "example", len(x))
    with torch.no_grad():
        linear(x)
    found = collector.finish()
    scale = search_scale([weight], found, kind=kind, group_size=64)
    grid = search_grid(weight.reshape(128, -1, 64), kind, SHRINKS, diagonal_blocks(found.gram, 64))
    factor = factorize(found.gram.clone(), damping=0.01, shrinkage=SHRINKAGE)
    gptq = quantize_gptq(weight, factor, kind=kind, group_size=64, search=True)
    searches = [scale.scale, torch.tensor(scale.loss), grid.scales, grid.zero_points]
    return [found.gram, found.mean_abs, *searches, factor.lower, gptq.q, gptq.scales]


# A sum in another order ends in the same bits now and then.
@pytest.mark.parametrize("seed", range(4))
def test_statistics_and_searches_are_bit_equal_for_one_and_for_two_threads(threads: None, seed: int) -> None:
    for one, two in zip(chosen(1, seed), chosen(2, seed), strict=True):
        assert torch.equal(one, two)
