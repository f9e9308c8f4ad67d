"""INT8 codes of a block, or of the head, as they come: weights to nearest, inputs over all they were seen at.

They are where the remedies (`quantflow/remedies/`) begin, and what these are measured against.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from torch import Tensor

from quantflow.calibrate.input_ranges import InputRanges
from quantflow.calibrate.stream import CalibratedBlock
from quantflow.errors import QuantizationError
from quantflow.model.families import Family
from quantflow.model.units import HEAD
from quantflow.quantize.block import Notice
from quantflow.quantize.int8 import int8_weight
from quantflow.quantize.int8_block import Int8Block
from quantflow.quantize.params import Scheme
from quantflow.quantize.ranges import spanning


def int8_block(
    block: CalibratedBlock, family: Family, schemes: Sequence[Scheme]
) -> tuple[dict[str, Int8Block], tuple[Notice, ...]]:
    """Quantize the units of a block.

    Args:
        block: A block with its lossless weights and the ranges of its units' inputs.
        family: Its units.
        schemes: INT8 ones.

    Returns:
        Id of a scheme → values, and what is to be said about units.

    Raises:
        QuantizationError: A weight is not finite.
    """
    prefix = family.block_name(block.index)
    units = {
        f"{prefix}.{unit}": {
            f"{prefix}.{name}": block.module.get_submodule(name).get_parameter("weight").detach()
            for name in names
        }
        for unit, names in family.units.items()
    }
    ranges = {f"{prefix}.{unit}": own for unit, own in block.ranges.items()}
    return int8_units(units, ranges, schemes)


def int8_head(
    weight: Tensor, ranges: InputRanges, schemes: Sequence[Scheme]
) -> tuple[dict[str, Int8Block], tuple[Notice, ...]]:
    """Quantize the head, as `int8_block` does a block.

    Args:
        weight: Its weight `[vocabulary, d]`.
        ranges: Of the final hidden states.
        schemes: INT8 ones.
    """
    return int8_units({HEAD: {HEAD: weight}}, {HEAD: ranges}, schemes)


def int8_units(
    units: Mapping[str, Mapping[str, Tensor]], ranges: Mapping[str, InputRanges], schemes: Sequence[Scheme]
) -> tuple[dict[str, Int8Block], tuple[Notice, ...]]:
    """Quantize units.

    Args:
        units: Full name of a unit → full name of a linear → its weight `[out, in]`.
        ranges: Full name of a unit → what its input ranges over.
        schemes: INT8 ones.
    """
    linears = {}
    for weights in units.values():
        for name, weight in weights.items():
            with _named(name):
                linears[name] = int8_weight(weight)
    notices = []
    inputs = {}
    for unit, own in ranges.items():
        inputs[unit] = spanning(float(own.low.min()), float(own.high.max()))
        dead = int(((own.low == 0) & (own.high == 0)).sum())
        if inputs[unit] is None:
            notices.append(Notice("range-of-zero", unit, dead))
        elif dead:
            notices.append(Notice("dead-input-channels", unit, dead))
    both = {
        name: replace(linears[name], input=inputs[unit]) for unit, names in units.items() for name in names
    }
    return {s.id: Int8Block(both if s.method == "w8a8" else linears) for s in schemes}, tuple(notices)


@contextmanager
def _named(where: str) -> Iterator[None]:
    try:
        yield
    except QuantizationError as error:
        raise QuantizationError(
            "its weight holds NaN or infinite values",
            where=where,
            hint="the source model is damaged; fetch it again",
        ) from error
