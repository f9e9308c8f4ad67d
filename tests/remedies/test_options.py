"""What can be done for a unit, and what it does to the unit's outputs."""

import pytest
import torch

from quantflow.calibrate.input_ranges import InputRanges
from quantflow.quantize.int8 import emulate
from quantflow.quantize.smoothing import smoothed, smoothing_scale
from quantflow.remedies.options import Option, UnitProblem, UnitValues, apply
from quantflow.remedies.scoring import score_options
from quantflow.remedies.sizes import CHANNELS, EXPONENTS, MOST_APART, OTHER_RANGES
from tests.remedies.problems import LOUD, inputs, problem

FRESH = inputs(seed=9)


def outputs(values: UnitValues, x: torch.Tensor) -> torch.Tensor:
    """What the unit gives, the scale of its input divided out before it."""
    if values.scale is not None:
        x = x / values.scale
    return torch.cat([emulate(linear, x) for linear in values.linears.values()], -1)


def lossless(own: UnitProblem, x: torch.Tensor) -> torch.Tensor:
    return x @ torch.cat(list(own.weights.values())).T


def error(own: UnitProblem, option: Option, x: torch.Tensor = FRESH) -> float:
    return float((outputs(apply(own, option), x) - lossless(own, x)).norm() / lossless(own, x).norm())


def test_the_loudest_channels_are_apart_and_do_not_count_for_the_range() -> None:
    own = problem()
    values = apply(own, Option(channels=2))
    for name, linear in values.linears.items():
        assert linear.floating_channels.tolist() == LOUD
        assert torch.equal(linear.floating_weight, own.weights[name][:, LOUD])
        assert linear.input is not None
        assert linear.input.highest_value < 6
    assert error(own, Option(channels=2)) < 0.2 * error(own, Option())


def test_one_channel_apart_is_the_very_loudest() -> None:
    assert apply(problem(), Option(channels=1)).linears["a"].floating_channels.tolist() == [LOUD[1]]


def test_two_products_make_up_for_all_that_inputs_lose() -> None:
    own = problem()
    values = apply(own, Option(twice=True))
    assert values.linears["a"].remainder is not None
    assert len(values.linears["a"].floating_channels) == 0
    weights_only = error(problem("int8"), Option())
    assert error(own, Option(twice=True)) == pytest.approx(weights_only, rel=0.05)
    assert error(own, Option()) > 3 * weights_only


def test_two_products_have_room_for_text_that_is_louder_than_calibration_was() -> None:
    own, louder = problem(), 1.9 * inputs()
    assert error(own, Option(twice=True), louder) < 1.2 * error(problem("int8"), Option(), louder)
    assert error(own, Option(), louder) > 3 * error(own, Option(twice=True), louder)


def test_all_linears_of_a_unit_read_one_input() -> None:
    values = apply(problem(), Option(0.5, 4, "mse"))
    first, second = values.linears.values()
    assert first.input == second.input
    assert torch.equal(first.floating_channels, second.floating_channels)


@pytest.mark.parametrize("exponent", [e for e in EXPONENTS if e])
def test_smoothing_alone_makes_the_unit_more_accurate(exponent: float) -> None:
    own = problem()
    values = apply(own, Option(exponent))
    assert values.scale is not None
    assert values.scale[LOUD].min() > 2 * values.scale.median()
    assert error(own, Option(exponent)) < 0.5 * error(own, Option())


def test_without_inputs_in_int8_the_channels_with_the_most_energy_are_apart() -> None:
    x = inputs()
    x[0, 20] = 300.0  # the widest range, and next to nothing otherwise
    x[1:, 20] = 0.0
    own = problem("int8", x=x)
    apart = apply(own, Option(channels=2)).linears["a"]
    assert apart.input is None
    assert apart.floating_channels.tolist() == LOUD
    assert apply(problem(x=x), Option(channels=1)).linears["a"].floating_channels.tolist() == [20]


def test_reduced_weights_cannot_overflow_sixteen_bits_and_are_less_accurate() -> None:
    reduced, whole = problem(reduced=True), problem()
    codes = torch.cat([own.q for own in apply(reduced, Option()).linears.values()]).int()
    pairs = (codes.clamp(min=0)[:, 0::2] + codes.clamp(min=0)[:, 1::2]) * 255
    assert codes.abs().max() == 64
    assert pairs.max() < 2**15
    apart = Option(channels=2)
    assert error(reduced, apart) > 1.2 * error(whole, apart)


def test_more_channels_than_a_quarter_of_the_layer_are_never_apart() -> None:
    counts = problem().channel_counts
    assert max(counts) == 8 == MOST_APART * 32
    assert max(CHANNELS) > max(counts)


def test_where_no_scale_can_be_folded_none_is_tried() -> None:
    assert problem(foldable=False).exponents == (0.0,)


def test_scales_of_silent_channels_and_of_a_silent_input_are_no_danger() -> None:
    low, high = torch.zeros(4), torch.tensor([0.0, 1.0, 2.0, 3.0])
    ranges = InputRanges(low, high, torch.zeros(2, 4, dtype=torch.bfloat16), 2)
    scale = smoothing_scale(ranges, torch.tensor([1.0, 0.0, 1.0, 1.0]), 0.5)
    assert torch.isfinite(scale).all()
    assert (scale > 0).all()
    silent = InputRanges(low, low, torch.zeros(2, 4, dtype=torch.bfloat16), 2)
    assert torch.equal(smoothing_scale(silent, torch.ones(4), 0.5), torch.ones(4))
    assert torch.equal(smoothed(ranges, torch.tensor([1.0, 2, 2, 2])).high, torch.tensor([0, 0.5, 1, 1.5]))


def test_a_silent_unit_stays_with_floating_inputs() -> None:
    own = problem(x=torch.zeros(50, 32))
    assert apply(own, Option(0.5, 2, "mse")).linears["a"].input is None


def scored(own: UnitProblem, x: torch.Tensor) -> tuple[dict[Option, float], torch.Tensor]:
    gradients = torch.randn(len(x), own.outputs, generator=torch.Generator().manual_seed(3))
    return score_options(own, x, gradients), gradients


@pytest.mark.parametrize("method", ["w8a8", "int8"])
@pytest.mark.parametrize("foldable", [True, False])
def test_an_option_s_score_is_fisher_s_estimate_for_the_outputs_it_gives(method: str, foldable: bool) -> None:
    own = problem(method, foldable=foldable)
    x = FRESH
    found, gradients = scored(own, x)
    inexact = []
    for option, score in found.items():
        delta = outputs(apply(own, option), x) - lossless(own, x)
        expected = float(0.5 * (gradients * delta).sum(-1).double().square().sum())
        # The loud channels hold none of the largest weights: without them rows have the scales that were
        # scored. Of others that are apart, or once they are smoothed, that is not so.
        if not option.channels or (not option.exponent and option.channels <= len(LOUD)):
            assert score == pytest.approx(expected, rel=1e-3), option
        else:
            inexact.append(expected / score)
    # Then rows have finer scales without them, and what is shipped is better than its score.
    assert not inexact or 0.3 < sum(inexact) / len(inexact) < 1.1


def test_all_that_may_be_done_is_scored() -> None:
    found, _ = scored(problem(), FRESH)
    counts = problem().channel_counts
    assert {(o.exponent, o.channels) for o in found if o.range == "minmax"} == {
        (exponent, count) for exponent in EXPONENTS for count in counts
    }
    assert [o for o in found if o.twice] == [Option(twice=True)]
    for count in counts:
        assert {o.range for o in found if o.channels == count} == {"minmax", *OTHER_RANGES}
    weights_only, _ = scored(problem("int8"), FRESH)
    assert {option.range for option in weights_only} == {"minmax"}
