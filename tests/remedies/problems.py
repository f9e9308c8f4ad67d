"""Units to try remedies on."""

import torch
from torch import Tensor

from quantflow.calibrate.input_ranges import InputRanges
from quantflow.quantize.params import int8_scheme
from quantflow.remedies.options import UnitProblem

LOUD = [5, 11]
"""Input channels thirty times as loud as the others, the second a little more."""


def inputs(tokens: int = 200, seed: int = 0) -> Tensor:
    x = torch.randn(tokens, 32, generator=torch.Generator().manual_seed(seed))
    x[:, LOUD] *= torch.tensor([30.0, 40.0])
    return x


def problem(
    method: str = "w8a8", *, reduced: bool = False, foldable: bool = True, x: Tensor | None = None
) -> UnitProblem:
    """A unit of two linears whose loud channels are not those with the largest weights."""
    x = inputs() if x is None else x
    generator = torch.Generator().manual_seed(1)
    weights = {name: torch.randn(rows, 32, generator=generator) for name, rows in (("a", 12), ("b", 20))}
    for weight in weights.values():
        weight[:, LOUD] *= 0.2
        weight[:, 0] *= 3
    return UnitProblem(
        unit="block.unit",
        weights=weights,
        ranges=InputRanges(x.amin(0), x.amax(0), x.to(torch.bfloat16), len(x)),
        scheme=int8_scheme("int8" if method == "int8" else "w8a8"),
        reduced=reduced,
        foldable=foldable,
    )
