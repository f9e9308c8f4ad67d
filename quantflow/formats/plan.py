"""What an artifact's files will hold, known from headers alone before anything is read or written."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from quantflow.errors import QuantizationError
from quantflow.formats.layouts import LAYOUTS, WEIGHT
from quantflow.model.families import Family
from quantflow.model.safetensors_file import TensorSpec
from quantflow.model.units import HEAD, units_of
from quantflow.model.weights import INDEX_FILE, SINGLE_FILE, SafetensorsReader
from quantflow.quantize.params import Scheme

HALF_DTYPES = (torch.float16, torch.bfloat16)
"""Dtypes that runtimes compute unquantized layers of a quantized model in."""


@dataclass(frozen=True)
class Entry:
    """A tensor of the source and what becomes of it.

    Attributes:
        source: Its name in the source.
        block: The decoder block it belongs to, None outside the blocks.
        linear: Full name of the linear whose codes replace it, None where it is kept.
        outputs: The tensors it is stored as.
    """

    source: str
    block: int | None
    linear: str | None
    outputs: tuple[TensorSpec, ...]

    @property
    def bytes(self) -> int:
        """Size of what it is stored as."""
        return sum(spec.bytes for spec in self.outputs)


@dataclass(frozen=True)
class Shard:
    """A safetensors file of the artifact.

    Attributes:
        file: Its name.
        entries: What it holds, block by block.
    """

    file: str
    entries: tuple[Entry, ...]


def block_of(name: str, family: Family) -> int | None:
    """The decoder block a tensor belongs to, None if to none."""
    match = re.match(re.escape(family.blocks) + r"\.(\d+)\.", name)
    return int(match[1]) if match else None


def in_order(reader: SafetensorsReader, family: Family) -> list[str]:
    """Names of all tensors of a source, those outside the blocks first, then block by block."""

    def place(name: str) -> tuple[int, str]:
        block = block_of(name, family)
        return (-1 if block is None else block, name)

    return sorted(reader.names(), key=place)


def stored_dtype(dtype: torch.dtype, half: torch.dtype) -> torch.dtype:
    """What a tensor that is not quantized is stored as: its own dtype, or `half` if that is a wider float."""
    return half if dtype.is_floating_point and dtype not in HALF_DTYPES else dtype


def plan_entries(
    reader: SafetensorsReader,
    family: Family,
    quantized: frozenset[str],
    format: str,
    scheme: Scheme,
    half: torch.dtype,
) -> tuple[Entry, ...]:
    """What becomes of every tensor of the source, those outside the blocks first, then block by block.

    Args:
        reader: The source.
        family: Its family.
        quantized: Full names of the linears whose codes are to be stored.
        format: Layout on disk.
        scheme: How they are quantized.
        half: What wider floats are stored as.

    Raises:
        QuantizationError: If a quantized linear's shape does not suit the format, or it is not in the source.
    """
    missing = quantized - {name.removesuffix(WEIGHT) for name in reader.names()}
    if missing:
        raise QuantizationError(
            "there are codes for it, and the source has no such layer", where=min(missing)
        )

    layout = LAYOUTS[format]
    entries = []
    for name in in_order(reader, family):
        spec, linear = reader.spec(name), name.removesuffix(WEIGHT)
        if name.endswith(WEIGHT) and linear in quantized:
            outputs, inputs = spec.shape
            group_size = scheme.group_width(inputs)
            why = layout.obstacle(outputs, inputs, scheme.bits)
            if inputs % group_size:
                why = f"groups are of {group_size} inputs"
            if why:
                raise QuantizationError(
                    f"has {outputs} outputs and {inputs} inputs; {why}",
                    where=linear,
                    hint="Choose a group_size that divides the inputs of every layer, or keep its unit.",
                )
            stored = layout.specs(linear, outputs, inputs, scheme.bits, group_size)
            entries.append(Entry(name, block_of(name, family), linear, stored))
        else:
            kept = TensorSpec(name, stored_dtype(spec.dtype, half), spec.shape)
            entries.append(Entry(name, block_of(name, family), None, (kept,)))
    return tuple(entries)


def plan_shards(entries: Sequence[Entry], max_bytes: int) -> tuple[Shard, ...]:
    """Cut entries, in their order, into files of at most `max_bytes` of data, unless one alone is larger."""
    cuts: list[list[Entry]] = [[]]
    size = 0
    for entry in entries:
        if cuts[-1] and size + entry.bytes > max_bytes:
            cuts.append([])
            size = 0
        cuts[-1].append(entry)
        size += entry.bytes
    if len(cuts) == 1:
        return (Shard(SINGLE_FILE, tuple(cuts[0])),)
    stem, suffix = Path(SINGLE_FILE).stem, Path(SINGLE_FILE).suffix
    return tuple(
        Shard(f"{stem}-{number:05d}-of-{len(cuts):05d}{suffix}", tuple(cut))
        for number, cut in enumerate(cuts, start=1)
    )


def shard_index(shards: Sequence[Shard]) -> Mapping[str, dict[str, Any]]:
    """The index file that several shards need, by its name; empty for one file."""
    if len(shards) == 1:
        return {}
    weight_map = {
        spec.name: shard.file for shard in shards for entry in shard.entries for spec in entry.outputs
    }
    total = sum(entry.bytes for shard in shards for entry in shard.entries)
    return {INDEX_FILE: {"metadata": {"total_size": total}, "weight_map": weight_map}}


def unit_precisions(
    family: Family, blocks: int, quantized: frozenset[str], bits: int, kept: str
) -> dict[str, str]:
    """Unit, e.g. `model.layers.0.qkv` → `int4`, or the dtype it is kept in.

    Raises:
        QuantizationError: If only some linears of a unit are quantized; runtimes fuse them, and cannot.
    """
    precisions = {HEAD: kept}
    for unit, linears in units_of(family, blocks).items():
        coded = [linear for linear in linears if linear in quantized]
        if coded and len(coded) < len(linears):
            raise QuantizationError(f"only {', '.join(coded)} of it are quantized", where=unit)
        precisions[unit] = f"int{bits}" if coded else kept
    return precisions
