"""What the linears of an ONNX artifact become, and where their values come from."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

import torch

from quantflow.errors import QuantizationError
from quantflow.formats.codes_reader import CodesReader
from quantflow.formats.onnx.graph_file import GraphFile
from quantflow.formats.onnx.linears import GraphLinear, Part
from quantflow.formats.onnx.plans import Int8Plan, NBitsPlan, Planned
from quantflow.quantize.codes import LinearCodes
from quantflow.quantize.grid import GridKind
from quantflow.quantize.int8 import Int8Linear, int8_weight
from quantflow.quantize.rtn import quantize_rtn

Codes = Callable[[str], Int8Linear]
"""Gives the INT8 codes of one of the model's linears by its full name."""

T = TypeVar("T")


class Latest:
    """Holds what was made last: a layer's constants are written one after the other, all of one value."""

    def __init__(self) -> None:
        self._key = ""
        self._value: object = None

    def of(self, key: str, make: Callable[[], T]) -> Callable[[], T]:
        """Gives what `make` makes, again where nothing else was asked for since."""

        def value() -> T:
            if self._key != key:
                self._value = None  # goes before the next one comes
                self._key, self._value = key, make()
            return self._value  # type: ignore[return-value]

        return value


def rounded_per_channel(linear: GraphLinear, graph: GraphFile, latest: Latest) -> Planned:
    """The graph's own weight rounded to INT8, a scale for each output; inputs stay as they are."""

    def load() -> Int8Linear:
        return int8_weight(graph_weight(linear, graph))

    return Int8Plan(latest.of(linear.weight, load))


def rounded_by_block(
    linear: GraphLinear, graph: GraphFile, bits: int, block_size: int, latest: Latest
) -> Planned:
    """The graph's own weight rounded to nearest by block, 8 bits symmetric, 4 bits with the least error."""
    kind = GridKind(bits, symmetric=bits == 8)

    def load() -> LinearCodes:
        return quantize_rtn(
            graph_weight(linear, graph), kind=kind, group_size=block_size, search=not kind.symmetric
        )

    return NBitsPlan(latest.of(linear.weight, load), bits, block_size, kind.symmetric)


def given_int8(linear: GraphLinear, codes: Codes, latest: Latest) -> Planned:
    """INT8 codes that a stage before chose for each of the layer's parts.

    Raises:
        QuantizationError: Parts of one product differ in how their common input is computed.
    """
    first = codes(linear.parts[0].linear)
    load = latest.of(linear.weight, lambda: _joined_int8(linear, codes))
    return Int8Plan(load, first.input, tuple(first.floating_channels.tolist()), first.remainder)


def given_codes(linear: GraphLinear, artifact: CodesReader, latest: Latest) -> Planned:
    """The codes of a finished AWQ or GPTQ artifact.

    Raises:
        ArtifactError: They cannot be read.
        QuantizationError: Groups are not consecutive inputs, or too wide.
    """
    first = artifact.codes(linear.parts[0].linear)
    _require_blocks(linear, first)

    def load() -> LinearCodes:
        return _joined_codes([_rows(artifact.codes(part.linear), part) for part in linear.parts])

    return NBitsPlan(latest.of(linear.weight, load), first.bits, first.group_size)


def graph_weight(linear: GraphLinear, graph: GraphFile) -> torch.Tensor:
    """A layer's weight as the graph has it, float32 `[out, in]`."""
    return torch.from_numpy(graph.read(linear.weight)).T.float().contiguous()


def _joined_int8(linear: GraphLinear, codes: Codes) -> Int8Linear:
    """The codes of several linears that read one input, as one with all their outputs."""
    loaded = [codes(part.linear) for part in linear.parts]
    first = loaded[0]
    for part, other in zip(linear.parts, loaded, strict=True):
        alike = (other.input, other.remainder) == (first.input, first.remainder)
        if not alike or not torch.equal(other.floating_channels, first.floating_channels):
            raise QuantizationError(
                f"rounds its input otherwise than {linear.parts[0].linear}, with which it is one product",
                where=part.linear,
            )
    cut = [_int8_rows(one, part) for one, part in zip(loaded, linear.parts, strict=True)]
    return Int8Linear(
        q=torch.cat([one.q for one in cut]),
        scales=torch.cat([one.scales for one in cut]),
        input=first.input,
        floating_channels=first.floating_channels,
        floating_weight=torch.cat([one.floating_weight for one in cut]),
        remainder=first.remainder,
    )


def _int8_rows(codes: Int8Linear, part: Part) -> Int8Linear:
    if part.rows is None:
        return codes
    rows = slice(*part.rows)
    return replace(
        codes, q=codes.q[rows], scales=codes.scales[rows], floating_weight=codes.floating_weight[rows]
    )


def _rows(codes: LinearCodes, part: Part) -> LinearCodes:
    if part.rows is None:
        return codes
    rows = slice(*part.rows)
    return replace(codes, q=codes.q[rows], scales=codes.scales[rows], zero_points=codes.zero_points[rows])


def _joined_codes(parts: Iterable[LinearCodes]) -> LinearCodes:
    whole = list(parts)
    return replace(
        whole[0],
        q=torch.cat([codes.q for codes in whole]),
        scales=torch.cat([codes.scales for codes in whole]),
        zero_points=torch.cat([codes.zero_points for codes in whole]),
    )


def _require_blocks(linear: GraphLinear, codes: LinearCodes) -> None:
    index = codes.group_index
    consecutive = index is None or torch.equal(
        index, torch.arange(len(index), dtype=torch.int32) // codes.group_size
    )
    size = codes.group_size
    if not consecutive:
        why = "its groups are not consecutive inputs (desc_act without static_groups)"
    elif size & (size - 1):
        why = f"its groups are of {size} inputs, which is no power of 2"
    else:
        return
    raise QuantizationError(
        f"its codes cannot be a MatMulNBits: {why}",
        where=linear.parts[0].linear,
        hint="Make the artifact that the codes are from with groups of 32, 64 or 128 and without desc_act.",
    )
