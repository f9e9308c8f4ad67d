"""From what an input ranges over to the range of its codes."""

import pytest
import torch

from quantflow.quantize.int8 import rounded_input
from quantflow.quantize.ranges import PERCENTILE, ends, spanning


def test_the_codes_of_a_range_reach_from_its_least_to_its_largest_value_and_hold_zero_exactly() -> None:
    how = spanning(-1.0, 3.0)
    assert how is not None
    assert (how.lowest_value, how.highest_value) == pytest.approx((-1.0, 3.0), abs=how.scale / 2)
    assert rounded_input(torch.zeros(1), how).item() == 0.0


@pytest.mark.parametrize(("low", "high"), [(2.0, 5.0), (-5.0, -2.0)])
def test_a_range_beside_zero_is_extended_to_it(low: float, high: float) -> None:
    how = spanning(low, high)
    assert how is not None
    assert how.zero_point in (0, 255)
    assert how.scale == pytest.approx(5.0 / 255)


def test_there_is_no_range_of_zero() -> None:
    assert spanning(0.0, 0.0) is None
    assert spanning(0.0, 1e-39) is None


def test_a_scale_is_one_that_float32_holds() -> None:
    how = spanning(-0.1, 0.7)
    assert how is not None
    assert how.scale == torch.tensor(how.scale, dtype=torch.float32).item()


@pytest.fixture
def values() -> torch.Tensor:
    """Ordinary values and, far away from them, one."""
    ordinary = torch.randn(40_000, generator=torch.Generator().manual_seed(0))
    return torch.cat([ordinary, torch.tensor([60.0])])


def test_minmax_spans_all(values: torch.Tensor) -> None:
    assert ends("minmax", values, -5.0, 60.0) == (-5.0, 60.0)


def test_a_percentile_leaves_out_the_part_of_the_values_that_it_says(values: torch.Tensor) -> None:
    low, high = ends("percentile", values, -5.0, 60.0)
    assert (values > high).sum() == round((1 - PERCENTILE) * int((values > 0).sum()))
    assert (values < low).sum() == round((1 - PERCENTILE) * int((values < 0).sum()))
    assert high < 5


def test_mse_rounds_better_than_spanning_all(values: torch.Tensor) -> None:
    def error(low: float, high: float) -> float:
        how = spanning(low, high)
        assert how is not None
        return float((rounded_input(values, how) - values).square().sum())

    found = ends("mse", values.repeat(3), -5.0, 60.0)
    assert found[1] <= 60.0
    uniform = values[:-1]
    clipped = ends("mse", uniform, -60.0, 60.0)
    assert clipped[1] < 30
    assert error(*found) <= error(-5.0, 60.0)


def test_entropy_gives_up_what_is_rare_and_far_away(values: torch.Tensor) -> None:
    low, high = ends("entropy", values, -5.0, 60.0)
    assert high < 60
    assert low > -5


def test_what_is_all_the_same_has_a_range_and_what_is_empty_keeps_its_own() -> None:
    for method in ("percentile", "mse", "entropy"):
        low, high = ends(method, torch.full((100,), 2.0), 2.0, 2.0)
        assert low == 0.0
        assert 0 < high <= 2.0
        assert ends(method, torch.empty(0), -1.0, 1.0) == (-1.0, 1.0)
