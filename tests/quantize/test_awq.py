import pytest
import torch
from torch import Tensor

from quantflow.calibrate.statistics import InputStatistics
from quantflow.quantize.awq import channel_scale, sampled_rows, scaled_loss, search_scale
from quantflow.quantize.block import diagonal_blocks
from quantflow.quantize.codes import dequantize, grid_codes
from quantflow.quantize.grid import Grid, GridKind, fit_grid, round_to_grid, search_grid
from quantflow.quantize.search_space import SHRINKS

GROUP = 16
KIND = GridKind(4)


def problem(seed: int = 0, tokens: int = 400) -> tuple[Tensor, Tensor]:
    """A weight `[24, 64]` and inputs `[tokens, 64]` of which a few channels are far louder than the rest."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, 64, generator=generator)
    x[:, [3, 17, 40]] *= 30
    return torch.randn(24, 64, generator=generator), x


def statistics(x: Tensor, sample: Tensor | None = None) -> InputStatistics:
    return InputStatistics(x.T @ x, x.abs().mean(0), sample, len(x))


def clipped(weight: Tensor, gram: Tensor) -> Grid:
    groups = weight.reshape(weight.shape[0], -1, GROUP)
    return search_grid(groups, KIND, SHRINKS, diagonal_blocks(gram, GROUP))


def rounded(weight: Tensor, grid: Grid) -> Tensor:
    return round_to_grid(weight.reshape(weight.shape[0], -1, GROUP), grid).reshape(weight.shape)


def output_error(weight: Tensor, quantized: Tensor, x: Tensor) -> float:
    return float(((x.double() @ (quantized - weight).double().T) ** 2).sum())


@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.9])
def test_the_gram_loss_is_the_error_of_the_outputs(exponent: float) -> None:
    weight, x = problem()
    scale = channel_scale(x.abs().mean(0), exponent)
    scaled = weight * scale
    direct = output_error(weight, rounded(scaled, fit_grid(scaled.reshape(24, -1, GROUP), KIND)) / scale, x)
    assert scaled_loss(weight, statistics(x), scale, KIND, GROUP) == pytest.approx(direct, rel=1e-4)
    assert scaled_loss(weight, statistics(x, x), scale, KIND, GROUP) == pytest.approx(direct, rel=1e-4)


def test_sampled_tokens_vote_where_there_is_a_sample() -> None:
    weight, x = problem()
    other = statistics(x, 3 * x[::4])
    scale = channel_scale(x.abs().mean(0), 0.5)
    direct = output_error(
        weight,
        rounded(weight * scale, fit_grid((weight * scale).reshape(24, -1, GROUP), KIND)) / scale,
        3 * x[::4],
    )
    assert scaled_loss(weight, other, scale, KIND, GROUP) == pytest.approx(direct, rel=1e-4)


def test_rows_that_vote_are_spaced_as_in_one_stack_of_the_linears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quantflow.quantize.awq.SAMPLED_ROWS", 7)
    stack = torch.arange(50.0).unsqueeze(1)
    for cut in (1, 7, 8, 25, 49):
        assert torch.equal(sampled_rows([stack[:cut], stack[cut:]]), stack[::8])


def test_the_scale_search_lowers_the_error_where_channels_are_loud() -> None:
    weight, x = problem()
    choice = search_scale([weight], statistics(x), kind=KIND, group_size=GROUP)
    assert choice.exponent > 0
    scaled = weight * choice.scale
    plain = output_error(weight, rounded(weight, fit_grid(weight.reshape(24, -1, GROUP), KIND)), x)
    found = output_error(
        weight, rounded(scaled, fit_grid(scaled.reshape(24, -1, GROUP), KIND)) / choice.scale, x
    )
    assert found < 0.5 * plain
    assert choice.loss == pytest.approx(found / plain, rel=1e-3)


def test_the_scale_search_finds_what_trying_every_exponent_finds() -> None:
    for seed in range(5):
        weight, x = problem(seed)
        own, mean_abs = statistics(x), x.abs().mean(0)
        choice = search_scale([weight], own, kind=KIND, group_size=GROUP)
        losses = [scaled_loss(weight, own, channel_scale(mean_abs, k / 20), KIND, GROUP) for k in range(20)]
        assert choice.loss * losses[0] <= 1.05 * min(losses)


def test_quiet_and_dead_channels_get_finite_scales() -> None:
    _, x = problem()
    x[:, 5] = 0
    scale = channel_scale(x.abs().mean(0), 0.95)
    assert torch.isfinite(scale).all()
    assert (scale > 0).all()


def test_an_input_that_is_zero_throughout_is_not_scaled() -> None:
    weight, x = problem()
    choice = search_scale([weight], statistics(0 * x), kind=KIND, group_size=GROUP)
    assert torch.equal(choice.scale, torch.ones(64))


def test_clipping_is_never_worse_within_groups_than_spanning_the_range() -> None:
    weight, x = problem()
    weight[:, 8] *= 6
    gram = x.T @ x
    found = rounded(weight, clipped(weight, gram))
    spanned = rounded(weight, fit_grid(weight.reshape(24, -1, GROUP), KIND))

    def within_groups(quantized: Tensor) -> Tensor:
        error = (quantized - weight).reshape(24, -1, GROUP)
        blocks = torch.stack([gram[i : i + GROUP, i : i + GROUP] for i in range(0, 64, GROUP)])
        return torch.einsum("oga,gab,ogb->og", error, blocks, error)

    assert (within_groups(found) <= within_groups(spanned) * (1 + 1e-4)).all()
    assert within_groups(found).sum() < 0.99 * within_groups(spanned).sum()


def test_codes_stand_for_the_rounded_weights() -> None:
    weight, x = problem()
    grid = clipped(weight, x.T @ x)
    codes = grid_codes(weight, grid)
    assert codes.q.dtype == torch.uint8
    assert torch.equal(dequantize(codes), rounded(weight, grid))
