import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quantflow.errors import QuantizationError
from quantflow.quantize.grid import SMALLEST_SCALE, GridKind, encode, fit_grid, round_to_grid, search_grid


def groups_of(seed: int, rows: int = 8, groups: int = 3, size: int = 16) -> torch.Tensor:
    return torch.randn(rows, groups, size, generator=torch.Generator().manual_seed(seed))


@given(st.integers(0, 1000), st.sampled_from([2, 3, 4, 8]))
def test_no_weight_is_off_by_more_than_half_a_step(seed: int, bits: int) -> None:
    groups = groups_of(seed)
    grid = fit_grid(groups, GridKind(bits))
    error = (round_to_grid(groups, grid) - groups).abs()
    # A zero point is rounded, too, which shifts the range by up to half a step, and a scale to float16.
    assert (error <= grid.scales.unsqueeze(-1) * 1.01).all()
    codes = encode(groups, grid)
    assert codes.min() >= 0
    assert codes.max() <= 2**bits - 1
    assert torch.equal(codes, codes.round())


def test_scales_are_what_float16_will_hold() -> None:
    scales = fit_grid(groups_of(0), GridKind(4)).scales
    assert torch.equal(scales, scales.half().float())


def test_zero_is_kept_exactly() -> None:
    groups = groups_of(1).abs() + 5
    groups[..., 0] = 0
    assert (round_to_grid(groups, fit_grid(groups, GridKind(4)))[..., 0] == 0).all()


def test_a_group_of_zeros_stays_zeros() -> None:
    groups = torch.zeros(2, 1, 16)
    grid = fit_grid(groups, GridKind(4))
    assert (grid.scales == SMALLEST_SCALE).all()
    assert (round_to_grid(groups, grid) == 0).all()


def test_weights_on_a_grid_come_back_exactly() -> None:
    codes = torch.arange(16.0).reshape(1, 1, 16)
    groups = (codes - 5) * 0.25
    assert torch.equal(round_to_grid(groups, fit_grid(groups, GridKind(4))), groups)


@given(st.integers(0, 1000), st.sampled_from([2, 3, 4, 8]))
def test_a_symmetric_grid_has_its_zero_in_the_middle_and_clips_by_half_a_step_at_most(
    seed: int, bits: int
) -> None:
    groups = groups_of(seed)
    grid = fit_grid(groups, GridKind(bits, symmetric=True))
    assert (grid.zero_points == 2 ** (bits - 1)).all()
    error = (round_to_grid(groups, grid) - groups).abs()
    # A scale is rounded to float16, which the largest of 128 steps feels most.
    assert (error <= grid.scales.unsqueeze(-1) * 0.57).all()


@given(st.integers(0, 1000), st.sampled_from([2, 3, 4, 8]))
def test_zero_points_can_be_kept_off_zero_and_the_grid_still_spans_the_range(seed: int, bits: int) -> None:
    groups = groups_of(seed).abs()  # their lowest is zero, where the zero point would be, too
    assert (fit_grid(groups, GridKind(bits)).zero_points == 0).all()
    grid = fit_grid(groups, GridKind(bits, lowest_zero_point=1))
    assert (grid.zero_points == 1).all()
    assert ((round_to_grid(groups, grid) - groups).abs() <= grid.scales.unsqueeze(-1) * 0.63).all()


def test_a_search_finds_the_part_of_the_range_that_errs_least() -> None:
    groups = groups_of(3)
    shrinks = (1.0, 0.8, 0.6, 0.4)

    def errors(shrink: float) -> torch.Tensor:
        rounded = round_to_grid(groups, fit_grid(groups, GridKind(2), shrink))
        return (rounded - groups).square().sum(-1)

    found = search_grid(groups, GridKind(2), shrinks)
    error = (round_to_grid(groups, found) - groups).square().sum(-1)
    assert torch.equal(error, torch.stack([errors(shrink) for shrink in shrinks]).amin(0))
    assert error.sum() < 0.99 * errors(1.0).sum()


def test_a_search_minds_what_an_error_costs() -> None:
    groups = groups_of(3)
    groups[..., 0] = 9.0
    cheap, dear = torch.ones(3, 16), torch.ones(3, 16)
    cheap[:, 0], dear[:, 0] = 1e-6, 1e6
    spread = [
        search_grid(groups, GridKind(4), (1.0, 0.5), torch.diag_embed(cost)).scales for cost in (cheap, dear)
    ]
    assert torch.equal(spread[1], fit_grid(groups, GridKind(4)).scales)
    assert spread[0].mean() < 0.9 * spread[1].mean()
    # A diagonal alone says the same as a matrix that has nothing else.
    assert torch.equal(search_grid(groups, GridKind(4), (1.0, 0.5), cheap).scales, spread[0])


def test_a_scale_beyond_float16_is_refused() -> None:
    with pytest.raises(QuantizationError, match="does not fit float16"):
        fit_grid(groups_of(0) * 1e6, GridKind(4))
