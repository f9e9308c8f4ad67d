"""What a linear of a graph becomes, as far as it is known before its weights are read."""

from collections.abc import Callable
from dataclasses import dataclass

from quantflow.quantize.codes import LinearCodes
from quantflow.quantize.int8 import InputRange, Int8Linear


@dataclass(frozen=True)
class Int8Plan:
    """A linear that becomes INT8, a scale for each output.

    Attributes:
        load: Makes or reads it, whenever one of its constants is written.
        input: How its input is quantized; None where only the weight is.
        floating_channels: Input channels that stay in floating point.
        remainder: How what rounding leaves of the input is rounded in its turn, for a second product; None
            for one product.
    """

    load: Callable[[], Int8Linear]
    input: InputRange | None = None
    floating_channels: tuple[int, ...] = ()
    remainder: InputRange | None = None


@dataclass(frozen=True)
class NBitsPlan:
    """A linear that becomes a MatMulNBits.

    Attributes:
        load: Makes or reads its codes, whenever one of its constants is written.
        bits: Width of a code, 4 or 8.
        block_size: Input channels that share a scale.
        symmetric: Whether zero points are all in the middle of the codes, and not written.
    """

    load: Callable[[], LinearCodes]
    bits: int
    block_size: int
    symmetric: bool = False


Planned = Int8Plan | NBitsPlan
