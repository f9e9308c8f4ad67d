import pytest
import torch
from torch import Tensor

from quantflow.quantize.awq import (
    _scaled_loss,
    channel_scale,
    encode_linear,
    search_grid,
    search_scale,
)
from quantflow.quantize.grid import Grid, fit_grid, round_to_grid

GROUP = 16


def problem(seed: int = 0, tokens: int = 400) -> tuple[Tensor, Tensor]:
    """A weight `[24, 64]` and inputs `[tokens, 64]` of which a few channels are far louder than the rest."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, 64, generator=generator)
    x[:, [3, 17, 40]] *= 30
    return torch.randn(24, 64, generator=generator), x


def rounded(weight: Tensor, grid: Grid) -> Tensor:
    return round_to_grid(weight.reshape(weight.shape[0], -1, GROUP), grid).reshape(weight.shape)


def output_error(weight: Tensor, quantized: Tensor, x: Tensor) -> float:
    return float(((x.double() @ (quantized - weight).double().T) ** 2).sum())


@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.9])
def test_the_gram_loss_is_the_error_of_the_outputs(exponent: float) -> None:
    weight, x = problem()
    scale = channel_scale(x.abs().mean(0), exponent)
    scaled = weight * scale
    direct = output_error(weight, rounded(scaled, fit_grid(scaled.reshape(24, -1, GROUP), 4)) / scale, x)
    assert _scaled_loss(weight, x.T @ x, scale, 4, GROUP) == pytest.approx(direct, rel=1e-4)


def test_the_scale_search_lowers_the_error_where_channels_are_loud() -> None:
    weight, x = problem()
    choice = search_scale(weight, x.T @ x, x.abs().mean(0), bits=4, group_size=GROUP)
    assert choice.exponent > 0
    scaled = weight * choice.scale
    plain = output_error(weight, rounded(weight, fit_grid(weight.reshape(24, -1, GROUP), 4)), x)
    found = output_error(
        weight, rounded(scaled, fit_grid(scaled.reshape(24, -1, GROUP), 4)) / choice.scale, x
    )
    assert found < 0.5 * plain
    assert choice.loss == pytest.approx(found / plain, rel=1e-3)


def test_the_scale_search_finds_what_trying_every_exponent_finds() -> None:
    for seed in range(5):
        weight, x = problem(seed)
        gram, mean_abs = x.T @ x, x.abs().mean(0)
        choice = search_scale(weight, gram, mean_abs, bits=4, group_size=GROUP)
        losses = [_scaled_loss(weight, gram, channel_scale(mean_abs, k / 20), 4, GROUP) for k in range(20)]
        assert choice.loss * losses[0] <= 1.05 * min(losses)


def test_quiet_and_dead_channels_get_finite_scales() -> None:
    _, x = problem()
    x[:, 5] = 0
    scale = channel_scale(x.abs().mean(0), 0.95)
    assert torch.isfinite(scale).all()
    assert (scale > 0).all()


def test_clipping_is_never_worse_within_groups_than_spanning_the_range() -> None:
    weight, x = problem()
    weight[:, 8] *= 6
    gram = x.T @ x
    clipped = rounded(weight, search_grid(weight, gram, bits=4, group_size=GROUP))
    spanned = rounded(weight, search_grid(weight, gram, bits=4, group_size=GROUP, clip=False))

    def within_groups(quantized: Tensor) -> Tensor:
        error = (quantized - weight).reshape(24, -1, GROUP)
        blocks = torch.stack([gram[i : i + GROUP, i : i + GROUP] for i in range(0, 64, GROUP)])
        return torch.einsum("oga,gab,ogb->og", error, blocks, error)

    assert (within_groups(clipped) <= within_groups(spanned) * (1 + 1e-4)).all()
    assert within_groups(clipped).sum() < 0.99 * within_groups(spanned).sum()


def test_codes_stand_for_the_rounded_weights() -> None:
    weight, x = problem()
    grid = search_grid(weight, x.T @ x, bits=4, group_size=GROUP)
    codes = encode_linear(weight, grid)
    assert codes.dtype == torch.uint8
    values = (codes.float().reshape(24, -1, GROUP) - grid.zero_points.unsqueeze(-1)) * grid.scales.unsqueeze(
        -1
    )
    assert torch.equal(values.reshape(24, 64), rounded(weight, grid))
