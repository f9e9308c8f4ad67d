import torch
from hypothesis import given
from hypothesis import strategies as st

from quantflow.quantize.grid import SMALLEST_SCALE, encode, fit_grid, round_to_grid


def groups_of(seed: int, rows: int = 8, groups: int = 3, size: int = 16) -> torch.Tensor:
    return torch.randn(rows, groups, size, generator=torch.Generator().manual_seed(seed))


@given(st.integers(0, 1000), st.sampled_from([2, 3, 4, 8]))
def test_no_weight_is_off_by_more_than_half_a_step(seed: int, bits: int) -> None:
    groups = groups_of(seed)
    grid = fit_grid(groups, bits)
    error = (round_to_grid(groups, grid) - groups).abs()
    # A zero point is rounded, too, which shifts the range by up to half a step, and a scale to float16.
    assert (error <= grid.scales.unsqueeze(-1) * 1.01).all()
    codes = encode(groups, grid)
    assert codes.min() >= 0
    assert codes.max() <= 2**bits - 1
    assert torch.equal(codes, codes.round())


def test_scales_are_what_float16_will_hold() -> None:
    scales = fit_grid(groups_of(0), 4).scales
    assert torch.equal(scales, scales.half().float())


def test_zero_is_kept_exactly() -> None:
    groups = groups_of(1).abs() + 5
    groups[..., 0] = 0
    assert (round_to_grid(groups, fit_grid(groups, 4))[..., 0] == 0).all()


def test_a_group_of_zeros_stays_zeros() -> None:
    groups = torch.zeros(2, 1, 16)
    grid = fit_grid(groups, 4)
    assert (grid.scales == SMALLEST_SCALE).all()
    assert (round_to_grid(groups, grid) == 0).all()


def test_weights_on_a_grid_come_back_exactly() -> None:
    codes = torch.arange(16.0).reshape(1, 1, 16)
    groups = (codes - 5) * 0.25
    assert torch.equal(round_to_grid(groups, fit_grid(groups, 4)), groups)
