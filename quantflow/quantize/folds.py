"""Where a unit's input scale goes: into the norm or the linear before it."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from quantflow.model.families import Family, Fold
from quantflow.quantize.awq import ScaleChoice


def folds_that_hold(family: Family, weights: Mapping[str, Tensor]) -> dict[str, Fold]:
    """Unit → its fold, of the units whose scale has a place to go in a block of these weights."""
    return {
        fold.unit: fold
        for fold in family.folds
        if fold.into not in weights
        or fold.holds(weights[fold.into].shape[0], weights[family.units[fold.unit][0]].shape[1])
    }


def storable(
    choice: ScaleChoice, module: nn.Module, fold: Fold, family: Family, stored_as: torch.dtype
) -> ScaleChoice:
    """The scale that is really divided out: a norm is rounded when it is stored.

    A channel whose norm would overflow or vanish in the type it is stored in is not scaled.
    """
    if fold.into in family.linears:
        return choice
    offset = family.norm_offset
    norm = module.get_submodule(fold.into).get_parameter("weight").detach().float() + offset
    stored = (norm / choice.scale - offset).to(stored_as).float() + offset
    usable = (norm != 0) & (stored != 0) & torch.isfinite(stored)
    return replace(choice, scale=torch.where(usable, norm / stored, 1.0))


def divisor(fold: Fold, scale: Tensor, outputs: int) -> Tensor:
    """What a scale `[d_in]` divides of the outputs that it is folded into: float32 `[outputs]`."""
    if not fold.last_rows:
        return scale
    return torch.cat([scale.new_ones(outputs - len(scale)), scale])


def scaled_weight(
    name: str, weight: Tensor, unit: str, folds: Mapping[str, Fold], scales: Mapping[str, Tensor]
) -> Tensor:
    """A linear's weight as it is quantized: columns times its unit's scale, rows over what is folded into it.

    Args:
        name: The linear, within its block.
        weight: float32 `[out, d_in]`.
        unit: The linear's unit.
        folds: Unit → its fold.
        scales: Unit → its scale.
    """
    after = [fold for fold in folds.values() if fold.into == name]
    if unit not in scales and not after:
        return weight
    scaled = weight * scales[unit] if unit in scales else weight.clone()
    for fold in after:
        scaled.div_(divisor(fold, scales[fold.unit], len(weight)).unsqueeze(1))
    return scaled
