"""A recipe's policy applied to the units of an artifact."""

from collections.abc import Sequence

from quantflow.errors import RecipeError
from quantflow.sensitivity.assign import (
    Choice,
    Limits,
    by_budget,
    by_threshold,
    nothing_spared,
    top_k,
    total_bytes,
)
from quantflow.sensitivity.choosing import AssignParams
from quantflow.sensitivity.decisions import Sizes
from quantflow.sensitivity.ladder import UnitLadder


def choose(params: AssignParams, units: Sequence[UnitLadder], sizes: Sizes) -> Choice:
    """Choose by the policy; nothing is spared where a search is to choose.

    Args:
        params: The policy and its numbers.
        units: The units' ladders.
        sizes: Of the artifact.

    Raises:
        RecipeError: A limit cannot be met with nothing spared, or nothing would be left to quantize.
    """
    if params.policy == "search":
        return nothing_spared(units)
    if params.policy == "budget":
        return by_budget(units, _limits(params, units, sizes))
    if params.threshold is not None:
        chosen, key = by_threshold(units, params.threshold), "sensitivity.threshold"
    else:
        chosen, key = top_k(units, params.top_k or 0), "sensitivity.top_k"
    if units and all(
        place == len(unit.rungs) - 1 and place for unit, place in zip(units, chosen, strict=True)
    ):
        raise RecipeError(
            "it spares every unit, so that nothing would be quantized",
            where=key,
            hint=f"The units' KL lies between {min(unit.own.kl for unit in units):.3g} and "
            f"{max(unit.own.kl for unit in units):.3g} nats per token.",
        )
    return chosen


def spared_limit(weights: int, share: float) -> int:
    """Weights that a share of all is."""
    return int(share * weights + 1e-6)  # 0.1 of 30 is 3, whatever binary fractions make of it


def _limits(params: AssignParams, units: Sequence[UnitLadder], sizes: Sizes) -> Limits:
    least = total_bytes(units, nothing_spared(units))
    allowed = []
    if params.effective_bits is not None:
        allowed.append(int(params.effective_bits * sizes.weights / 8 + 1e-6))
        if allowed[-1] < least:
            raise RecipeError(
                f"with nothing spared a weight takes {8 * least / sizes.weights:.3f} bits, scales counted",
                where="sensitivity.effective_bits",
                hint="Allow more, or choose fewer bits or larger groups.",
            )
    if params.max_bytes is not None:
        allowed.append(params.max_bytes - sizes.other_bytes)
        if allowed[-1] < least:
            raise RecipeError(
                f"with nothing spared the tensors of {params.choosing.assemble.name} take "
                f"{least + sizes.other_bytes} bytes",
                where="sensitivity.max_bytes",
                hint="Allow more, or choose fewer bits or larger groups.",
            )
    return Limits(
        spared=None if params.max_spared is None else spared_limit(sizes.weights, params.max_spared),
        bytes=min(allowed, default=None),
    )
