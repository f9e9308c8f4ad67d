"""What an option does to the logits, estimated for all options of a unit from one gradient.

Fisher's estimate of the KL that a change Δy of a unit's outputs makes is ½·Σ_t (g_t·Δy_t)² per scored
position (see `quantflow/sensitivity/fisher.py`). With Δy = Ŵ·x̂ − W·x it needs no Δy: g·Δy is
(Ŵᵀg)·x̂ − (Wᵀg)·x, so that a unit's outputs are gone through once for each smoothing, and every choice of
channels and ranges costs a few passes over its inputs.
"""

from dataclasses import replace

import torch
from torch import Tensor

from quantflow.calibrate.input_ranges import InputRanges
from quantflow.quantize.int8 import int8_weight
from quantflow.quantize.search_space import RangeMethod
from quantflow.quantize.smoothing import smoothed
from quantflow.remedies.options import Option, UnitProblem, input_steps, loudest_first
from quantflow.remedies.sizes import OTHER_RANGES

TWICE = Option(twice=True)


@torch.no_grad()
def score_options(problem: UnitProblem, inputs: Tensor, gradients: Tensor) -> dict[Option, float]:
    """½·Σ_t (g_t·Δy_t)² of every option that is tried.

    Those are all exponents and counts of channels with MinMax ranges; for each count the other ranges with
    the best exponent; and the input in two products, which leaves nothing for the others to mend.

    Args:
        problem: The unit.
        inputs: Of the lossless model, float32 `[tokens, d_in]`.
        gradients: Of the loss of labels drawn from the model, at the outputs of the unit's linears, one
            beside the other in their order, `[tokens, out]`.

    Returns:
        Option → nats, summed over tokens.
    """
    exact = _projected(problem, gradients, None)
    aims = (exact * inputs).sum(-1)
    tried = {e: _Smoothed(problem, e, inputs, gradients, aims) for e in problem.exponents}
    found: dict[Option, float] = {}
    for count in problem.channel_counts:
        plain = {Option(e, count): own.effect(count, "minmax") for e, own in tried.items()}
        found |= plain
        if problem.scheme.method == "w8a8":
            best = min(plain, key=plain.__getitem__)
            for method in OTHER_RANGES:
                found[replace(best, range=method)] = tried[best.exponent].effect(count, method)
    if problem.scheme.method == "w8a8":
        found[TWICE] = tried[TWICE.exponent].effect(TWICE.channels, TWICE.range, twice=True)
    return found


class _Smoothed:
    """A unit with its input smoothed by one exponent.

    Its weight is rounded once, all channels together: that those apart do not count for the scales of rows
    when it is done in earnest makes it a little better than this.
    """

    def __init__(
        self, problem: UnitProblem, exponent: float, inputs: Tensor, gradients: Tensor, aims: Tensor
    ) -> None:
        scale = problem.scale(exponent)
        self._problem = problem
        self._ranges: InputRanges = smoothed(problem.ranges, scale)
        self._order = loudest_first(problem, self._ranges).to(inputs.device)
        scale = scale.to(inputs.device)
        # In the order in which channels are taken apart: those that stay are then one piece.
        self._inputs = (inputs / scale)[:, self._order]
        self._quantized = _projected(problem, gradients, scale)[:, self._order]
        exact = (_projected(problem, gradients, None) * scale)[:, self._order]
        # What channels apart give, from the first on.
        self._apart = (exact * self._inputs).cumsum(-1)
        self._aims = aims

    def effect(self, count: int, method: RangeMethod, *, twice: bool = False) -> float:
        """½·Σ_t (g_t·Δy_t)² with so many channels apart."""
        rest = self._order[count:].cpu()
        steps = input_steps(self._problem, self._ranges, rest, method, twice=twice)
        rounded = steps.rounded(self._inputs[:, count:])
        given = (rounded * self._quantized[:, count:]).sum(-1)
        if count:
            given = given + self._apart[:, count - 1]
        return float(0.5 * (given - self._aims).double().square().sum())


def _projected(problem: UnitProblem, gradients: Tensor, scale: Tensor | None) -> Tensor:
    """Wᵀg of a unit, of its lossless weights or of those rounded after smoothing, `[tokens, d_in]`."""
    total = torch.zeros(len(gradients), problem.inputs, device=gradients.device)
    begin = 0
    for weight in problem.weights.values():
        end = begin + len(weight)
        own = weight.float()
        if scale is not None:
            linear = int8_weight(own * scale, largest_code=problem.largest_code)
            own = linear.q.float() * linear.scales.unsqueeze(1)
        total.addmm_(gradients[:, begin:end], own)
        begin = end
    return total
