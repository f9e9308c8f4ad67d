"""AWQ of one decoder block: from its weights and statistics to codes and the folds they assume."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from quantflow.calibrate.stream import CalibratedBlock
from quantflow.errors import QuantizationError
from quantflow.model.families import Family, Fold
from quantflow.quantize.awq import ScaleChoice, encode_linear, search_grid, search_scale
from quantflow.quantize.codes import BlockCodes, LinearCodes

# Clipping query and key weights moves attention logits as a whole, which their outputs' error does not
# show; AutoAWQ leaves them alone for the same reason.
NEVER_CLIPPED = ("q_proj", "k_proj", "qkv_proj")


@dataclass(frozen=True)
class QuantizedBlock:
    """A block's codes and how they were chosen.

    Attributes:
        codes: What is stored.
        choices: Unit → its scale search; only units that a scale can be folded before.
    """

    codes: BlockCodes
    choices: Mapping[str, ScaleChoice]


@torch.no_grad()
def quantize_block_awq(
    block: CalibratedBlock, family: Family, *, bits: int, group_size: int, stored_as: torch.dtype
) -> QuantizedBlock:
    """Choose channel scales unit by unit, then clip and round every linear.

    Args:
        block: A block with its lossless weights and the statistics of its units' inputs.
        family: Its units and folds.
        bits: Width of a code.
        group_size: Input channels that share a scale and a zero point.
        stored_as: Dtype of the artifact's norms.

    Raises:
        QuantizationError: A weight is NaN or infinite.
    """
    prefix = family.block_name(block.index)
    weights = {name: _weight(block.module, name, prefix) for name in family.linears}
    folds = {fold.unit: fold for fold in family.folds if _holds(fold, family, weights)}
    choices = {
        unit: search_scale(
            torch.cat([weights[name] for name in family.units[unit]]),
            block.statistics[unit].gram,
            block.statistics[unit].mean_abs,
            bits=bits,
            group_size=group_size,
        )
        for unit in folds
    }
    choices = {
        unit: _storable(choice, block.module, folds[unit], family, stored_as)
        for unit, choice in choices.items()
    }
    linears: dict[str, LinearCodes] = {}
    for unit, names in family.units.items():
        gram = block.statistics[unit].gram
        if unit in choices:
            scale = choices[unit].scale
            gram = gram / torch.outer(scale, scale)
        for name in names:
            weight = weights[name]
            if unit in choices:
                weight = weight * choices[unit].scale
            for fold in folds.values():
                if fold.into == name:
                    weight = weight / divisor(fold, choices[fold.unit].scale, len(weight)).unsqueeze(1)
            linears[f"{prefix}.{name}"] = _codes(name, weight, gram, bits, group_size)
    folded = {
        f"{prefix}.{fold.into}.weight": divisor(
            fold, choices[unit].scale, len(weights.get(fold.into, choices[unit].scale))
        ).cpu()
        for unit, fold in folds.items()
    }
    return QuantizedBlock(BlockCodes(linears=linears, folds=folded), choices)


def _holds(fold: Fold, family: Family, weights: Mapping[str, Tensor]) -> bool:
    if fold.into not in weights:
        return True
    return fold.holds(weights[fold.into].shape[0], weights[family.units[fold.unit][0]].shape[1])


def divisor(fold: Fold, scale: Tensor, outputs: int) -> Tensor:
    """What a scale `[d_in]` divides of the outputs that it is folded into: float32 `[outputs]`."""
    if not fold.last_rows:
        return scale
    return torch.cat([scale.new_ones(outputs - len(scale)), scale])


def _storable(
    choice: ScaleChoice, module: nn.Module, fold: Fold, family: Family, stored_as: torch.dtype
) -> ScaleChoice:
    """The scale that is really divided out: a norm is rounded when it is stored."""
    if fold.into in family.linears:
        return choice
    offset = family.norm_offset
    norm = module.get_submodule(fold.into).get_parameter("weight").detach().float() + offset
    stored = (norm / choice.scale - offset).to(stored_as).float() + offset
    usable = (norm != 0) & (stored != 0) & torch.isfinite(stored)
    return replace(choice, scale=torch.where(usable, norm / stored, choice.scale))


def _weight(module: nn.Module, name: str, prefix: str) -> Tensor:
    weight = module.get_submodule(name).get_parameter("weight").detach().float()
    if not bool(torch.isfinite(weight).all()):
        raise QuantizationError(
            "its weight holds NaN or infinite values",
            where=f"{prefix}.{name}",
            hint="the source model is damaged; fetch it again",
        )
    return weight


def _codes(name: str, weight: Tensor, gram: Tensor, bits: int, group_size: int) -> LinearCodes:
    clip = name.rpartition(".")[2] not in NEVER_CLIPPED
    grid = search_grid(weight, gram, bits=bits, group_size=group_size, clip=clip)
    return LinearCodes(
        q=encode_linear(weight, grid).cpu(),
        scales=grid.scales.half().cpu(),
        zero_points=grid.zero_points.to(torch.uint8).cpu(),
        bits=bits,
        group_size=group_size,
    )
