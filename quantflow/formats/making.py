"""Codes and what is not quantized become a directory that a runtime loads, whichever units are kept.

Goes block by block and file by file; in memory are one block's codes and one tensor.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Self

import torch
from pydantic import JsonValue
from torch import Tensor

from quantflow.errors import QuantizationError, SourceError
from quantflow.formats.artifact_codes import ArtifactCodes
from quantflow.formats.assembly import (
    ARTIFACT_FOLDER,
    Assembly,
    save_assembly,
)
from quantflow.formats.folder import (
    CONFIG_FILE,
    MAX_SHARD_BYTES,
    artifact_config,
    copy_companions,
    folder_bytes,
    write_json,
    write_provenance,
)
from quantflow.formats.gptq import mixes_groups
from quantflow.formats.layouts import LAYOUTS, WEIGHT
from quantflow.formats.params import AssembleParams
from quantflow.formats.plan import (
    Entry,
    Shard,
    block_of,
    plan_entries,
    plan_shards,
    shard_index,
    unit_precisions,
)
from quantflow.formats.read import open_artifact
from quantflow.model.build import family_at
from quantflow.model.families import Family
from quantflow.model.safetensors_file import write_safetensors
from quantflow.model.units import units_of
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.quantize.codes import BlockCodes, LinearCodes
from quantflow.quantize.params import Scheme
from quantflow.quantize.search_space import SHRINKAGE
from quantflow.source.checkpoint import Checkpoint, load_checkpoint

GPTQ_FACTS = ("desc_act", "static_groups", "damping")
"""Settings of a scheme that no other method looks at."""


@dataclass(frozen=True)
class Ingredients:
    """What artifacts are made of.

    Attributes:
        checkpoint: The lossless model.
        reader: Its tensors.
        family: Its family.
        blocks: How many blocks it has.
        codes: Output of the stage that made the codes.
    """

    checkpoint: Checkpoint
    reader: SafetensorsReader
    family: Family
    blocks: int
    codes: Path

    @classmethod
    def of(cls, inputs: Mapping[str, Path]) -> Self:
        """From the finished outputs of `source` and `codes`."""
        checkpoint = load_checkpoint(inputs["source"])
        reader = SafetensorsReader(checkpoint.folder)
        family = family_at(checkpoint.folder, checkpoint.model_type)
        blocks = 1 + max((block_of(name, family) or 0 for name in reader.names()), default=0)
        return cls(checkpoint, reader, family, blocks, inputs["codes"])


def write_artifact(
    params: AssembleParams, model: Ingredients, kept: frozenset[str], output: Path, reporter: Reporter
) -> Assembly:
    """Write an artifact with some units kept; as `run`, which chooses them.

    Args:
        params: Name, format and scheme.
        model: What it is made of.
        kept: Units of the blocks that stay as they are.
        output: An empty folder.
        reporter: Receives progress.
    """
    checkpoint, reader, family = model.checkpoint, model.reader, model.family
    codes = _codes(params, model, kept)
    entries = entries_of(params, model, kept)
    shards = plan_shards(entries, MAX_SHARD_BYTES)
    folder = output / ARTIFACT_FOLDER
    folder.mkdir()
    with reporter.track(f"assemble {params.name}, tensors", len(entries)) as advance:
        for shard in shards:
            write_safetensors(
                folder / shard.file,
                [spec for entry in shard.entries for spec in entry.outputs],
                _shard_tensors(shard, reader, codes, params, family, advance),
                {"format": "pt"},
            )
    quantized = _quantized(model, codes)
    left = {
        unit: linears
        for unit, linears in units_of(family, model.blocks).items()
        if not quantized.intersection(linears)
    }
    config = artifact_config(checkpoint, checkpoint.half_dtype)
    config["quantization_config"] = LAYOUTS[params.format].config(params.scheme, left, family.outside)
    for name, content in {CONFIG_FILE: config, **shard_index(shards)}.items():
        write_json(folder / name, content)
    copy_companions(checkpoint, folder)
    precisions = unit_precisions(family, model.blocks, quantized, params.scheme.bits, checkpoint.half_dtype)
    facts = {"name": params.name, "format": params.format, **scheme_facts(params.scheme)}
    write_provenance(checkpoint, folder, {**facts, "precisions": precisions})
    open_artifact(folder)
    assembly = Assembly(
        folder=folder,
        name=params.name,
        format=params.format,
        bytes=folder_bytes(folder),
        weight_bytes=sum(entry.bytes for entry in entries),
        source_weight_bytes=sum(reader.spec(name).bytes for name in reader.names()),
        quantized_linears=len(quantized),
        kept_units=tuple(sorted(left)),
    )
    save_assembly(output, assembly)
    return assembly


def _codes(params: AssembleParams, model: Ingredients, kept: frozenset[str]) -> ArtifactCodes:
    return ArtifactCodes(model.codes, params.scheme, model.family, kept)


def _quantized(model: Ingredients, codes: ArtifactCodes) -> frozenset[str]:
    """Full names of the linears that there will be codes of."""
    return frozenset[str]().union(*(codes.quantized(index) for index in range(model.blocks)))


def entries_of(params: AssembleParams, model: Ingredients, kept: frozenset[str]) -> tuple[Entry, ...]:
    """What becomes of every tensor of the source in an artifact with some units kept."""
    half = getattr(torch, model.checkpoint.half_dtype)
    quantized = _quantized(model, _codes(params, model, kept))
    return plan_entries(model.reader, model.family, quantized, params.format, params.scheme, half)


def scheme_facts(scheme: Scheme) -> dict[str, JsonValue]:
    """What an artifact's provenance says of a scheme: settings that its method does not use are left out."""
    facts = scheme.model_dump(mode="json")
    if "gptq" in scheme.method:
        return {**facts, "shrinkage": SHRINKAGE}
    return {name: fact for name, fact in facts.items() if name not in GPTQ_FACTS}


def _shard_tensors(
    shard: Shard,
    reader: SafetensorsReader,
    codes: ArtifactCodes,
    params: AssembleParams,
    family: Family,
    advance: Callable[[int], None],
) -> Iterator[tuple[str, Tensor]]:
    layout = LAYOUTS[params.format]
    for block, entries in groupby(shard.entries, key=lambda entry: entry.block):
        own = BlockCodes({}, {}) if block is None else codes.load(block)
        unknown = {name for name in own.folds if name not in reader.names()}
        if unknown:
            raise QuantizationError(
                "a scale is folded into it, and the source has no such tensor", where=min(unknown)
            )
        for entry in entries:
            if entry.linear is None:
                yield from _kept_pieces(entry, reader, own.folds, family)
            else:
                linear = own.linears[entry.linear]
                _check_codes(entry.linear, linear, reader.spec(entry.source).shape, params.scheme)
                try:
                    yield from layout.tensors(entry.linear, linear).items()
                except ValueError as error:
                    raise QuantizationError(str(error), where=entry.linear) from error
            advance(1)


def _check_codes(name: str, codes: LinearCodes, shape: tuple[int, ...], scheme: Scheme) -> None:
    if codes.q.shape != shape:
        raise QuantizationError(
            f"has codes of shape {list(codes.q.shape)} for a weight of shape {list(shape)}", where=name
        )
    group_size = scheme.group_width(shape[1])
    if (codes.bits, codes.group_size) != (scheme.bits, group_size):
        raise QuantizationError(
            f"has codes of {codes.bits} bits in groups of {codes.group_size}; the artifact is to have "
            f"{scheme.bits} bits in groups of {group_size}",
            where=name,
        )
    if scheme.symmetric and bool((codes.zero_points != 1 << (scheme.bits - 1)).any()):
        raise QuantizationError("has zero points beside the middle in a symmetric scheme", where=name)
    if codes.group_index is not None and not mixes_groups(scheme):
        raise QuantizationError(
            "has groups that are not consecutive in a scheme without desc_act", where=name
        )


def _kept_pieces(
    entry: Entry, reader: SafetensorsReader, folds: Mapping[str, Tensor], family: Family
) -> Iterator[tuple[str, Tensor]]:
    """A tensor that is not quantized; in pieces, as an embedding is large, if no scale is folded into it."""
    (spec,) = entry.outputs
    if entry.source.rpartition(".")[0] + WEIGHT in folds:
        offset = family.norm_offset if _is_norm_weight(entry.source, family) else 0.0
        yield spec.name, _kept_tensor(entry.source, reader.read(entry.source), folds, spec.dtype, offset)
        return
    for piece in reader.chunks(entry.source):
        yield spec.name, _kept_tensor(entry.source, piece, folds, spec.dtype, 0.0)


def _is_norm_weight(name: str, family: Family) -> bool:
    """Whether a tensor that a scale is folded into is a norm's weight, and not a bias or a linear's."""
    return name.endswith(WEIGHT) and not name.endswith(tuple(f".{n}{WEIGHT}" for n in family.linears))


def _kept_tensor(
    name: str, tensor: Tensor, folds: Mapping[str, Tensor], dtype: torch.dtype, offset: float
) -> Tensor:
    """A tensor that is not quantized, as it is stored: divided by the scale folded into its module.

    `offset` is what the module adds to the tensor before it multiplies by it.
    """
    if not tensor.dtype.is_floating_point:
        return tensor
    if not bool(torch.isfinite(tensor).all()):
        raise SourceError("holds NaN or infinite values", where=name)
    owner, _, _ = name.rpartition(".")
    scale = folds.get(owner + WEIGHT)
    if scale is not None:
        # A linear's weight has the outputs, which the scale is for, along its rows; all else is vectors.
        divisor = scale.unsqueeze(1) if tensor.dim() == 2 else scale
        tensor = (tensor.to(torch.float32) + offset) / divisor - offset
    stored = tensor.to(dtype)
    if not bool(torch.isfinite(stored).all()):
        largest = float(tensor.abs().max())
        raise QuantizationError(
            f"its largest value, {largest:g}, does not fit {str(dtype).removeprefix('torch.')}",
            where=name,
            hint="Store the source model in bfloat16, which has the range of float32.",
        )
    return stored
