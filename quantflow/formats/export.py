"""The assemble stage of a lossless export: the model as a plain Hugging Face folder of 16-bit safetensors.

Goes over the weights twice, a piece or a tensor at a time: to find out what the type costs, and to write.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from pydantic import JsonValue
from torch import Tensor

from quantflow.formats.assembly import ARTIFACT_FOLDER, Assembly, save_assembly
from quantflow.formats.folder import (
    CONFIG_FILE,
    MAX_SHARD_BYTES,
    artifact_config,
    copy_companions,
    folder_bytes,
    write_json,
    write_provenance,
)
from quantflow.formats.params import ExportParams
from quantflow.formats.plan import Entry, block_of, in_order, plan_shards, shard_index
from quantflow.formats.read import open_artifact
from quantflow.formats.rounding import Losses, tensor_losses
from quantflow.model.build import family_at
from quantflow.model.families import Family
from quantflow.model.safetensors_file import TensorSpec, write_safetensors
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import load_checkpoint

MOST_NAMED = 50
"""Tensors that an event names, those that lose most; quantflow.json has them all."""


def run(params: ExportParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Write the artifact to `artifact/` and what it came to, `assemble.json`.

    Raises:
        SourceError: If the source cannot be read or holds what is not a finite number.
    """
    checkpoint = load_checkpoint(inputs["source"])
    reader = SafetensorsReader(checkpoint.folder)
    family = family_at(checkpoint.folder, checkpoint.model_type)
    dtype: torch.dtype = getattr(torch, params.dtype)
    counted = _count_losses(reader, dtype, reporter)
    kept = units_that_keep(counted, family, reader)
    entries = plan_export(reader, family, dtype, frozenset(name for names in kept.values() for name in names))
    config_dtype = _widest([entry.outputs[0].dtype for entry in entries], dtype)
    _tell_losses(counted, kept, params.dtype, config_dtype, reporter)

    folder = output / ARTIFACT_FOLDER
    folder.mkdir()
    shards = plan_shards(entries, MAX_SHARD_BYTES)
    with reporter.track(f"assemble {params.name}, tensors", len(entries)) as advance:
        for shard in shards:
            specs = [entry.outputs[0] for entry in shard.entries]
            tensors = _converted(shard.entries, reader, advance)
            write_safetensors(folder / shard.file, specs, tensors, {"format": "pt"})
    for name, content in {
        CONFIG_FILE: artifact_config(checkpoint, config_dtype),
        **shard_index(shards),
    }.items():
        write_json(folder / name, content)
    copy_companions(checkpoint, folder)
    facts = {
        **params.model_dump(mode="json"),
        "precisions": _precisions(entries, family),
        "losses": {name: asdict(lost) for name, lost in counted.items() if lost.changed},
        "kept": {unit: list(names) for unit, names in kept.items()},
    }
    write_provenance(checkpoint, folder, facts)
    open_artifact(folder)
    assembly = Assembly(
        folder=folder,
        name=params.name,
        format=params.format,
        bytes=folder_bytes(folder),
        weight_bytes=sum(entry.bytes for entry in entries),
        source_weight_bytes=sum(reader.spec(name).bytes for name in reader.names()),
        quantized_linears=0,
        kept_units=tuple(sorted(kept.keys() - reader.names())),
    )
    save_assembly(output, assembly)


def units_that_keep(
    counted: Mapping[str, Losses], family: Family, reader: SafetensorsReader
) -> dict[str, tuple[str, ...]]:
    """What has to keep its own data type, because a value in it would become infinite in the new one.

    Args:
        counted: Tensor → what the new type does to it.
        family: Where the units are.
        reader: The source.

    Returns:
        Unit, e.g. `model.layers.1.down`, or a tensor outside all units → the tensors that keep their type.
    """
    kept: dict[str, tuple[str, ...]] = {}
    for name in sorted(counted):
        if counted[name].overflow:
            unit, linears = _unit_of(name, family)
            # Runtimes fuse a unit's linears into one, which has one type.
            members = [n for n in reader.names() if n.rpartition(".")[0] in linears] if linears else [name]
            kept[unit] = tuple(sorted(members))
    return kept


def plan_export(
    reader: SafetensorsReader, family: Family, dtype: torch.dtype, kept: frozenset[str]
) -> tuple[Entry, ...]:
    """Every tensor of the source with the data type it is stored in, those outside the blocks first.

    Args:
        reader: The source.
        family: Where the blocks are.
        dtype: What floating-point tensors become.
        kept: Tensors that stay as they are.
    """
    entries = []
    for name in in_order(reader, family):
        spec = reader.spec(name)
        stays = name in kept or not spec.dtype.is_floating_point
        stored = TensorSpec(name, spec.dtype if stays else dtype, spec.shape)
        entries.append(Entry(name, block_of(name, family), None, (stored,)))
    return tuple(entries)


def _unit_of(name: str, family: Family) -> tuple[str, frozenset[str]]:
    """The unit a tensor belongs to and its linears' full names; the tensor alone where there is none."""
    block = block_of(name, family)
    if block is not None:
        prefix = family.block_name(block)
        for unit, linears in family.units.items():
            members = frozenset(f"{prefix}.{linear}" for linear in linears)
            if name.rpartition(".")[0] in members:
                return f"{prefix}.{unit}", members
    return name, frozenset()


def _precisions(entries: Sequence[Entry], family: Family) -> dict[str, str]:
    """Unit of a block, e.g. `model.layers.0.qkv`, or tensor outside all units → what it is stored in."""
    return {_unit_of(entry.source, family)[0]: _word(entry.outputs[0].dtype) for entry in entries}


def _count_losses(reader: SafetensorsReader, dtype: torch.dtype, reporter: Reporter) -> dict[str, Losses]:
    names = [name for name in sorted(reader.names()) if reader.spec(name).dtype.is_floating_point]
    counted = {}
    with reporter.track(f"looking for what {_word(dtype)} cannot hold, tensors", len(names)) as advance:
        for name in names:
            if reader.spec(name).dtype != dtype:
                counted[name] = tensor_losses(name, reader.chunks(name), dtype)
            advance(1)
    return counted


def _converted(
    entries: Sequence[Entry], reader: SafetensorsReader, advance: Callable[[int], None]
) -> Iterator[tuple[str, Tensor]]:
    for entry in entries:
        yield entry.source, reader.read(entry.source).to(entry.outputs[0].dtype)
        advance(1)


def _widest(stored: Sequence[torch.dtype], dtype: torch.dtype) -> str:
    """What config.json says: runtimes convert all weights to it, so it has to have the range of every one."""
    floating = {stored_dtype for stored_dtype in stored if stored_dtype.is_floating_point}
    return _word(max(sorted(floating, key=str), key=lambda d: torch.finfo(d).max, default=dtype))


def _tell_losses(
    counted: Mapping[str, Losses],
    kept: Mapping[str, tuple[str, ...]],
    dtype: str,
    config_dtype: str,
    reporter: Reporter,
) -> None:
    if kept:
        largest = {unit: max(counted[name].largest for name in names) for unit, names in kept.items()}
        limit = torch.finfo(getattr(torch, dtype)).max
        reporter.event(
            "unit-keeps-dtype",
            f"{len(kept)} of the model's units hold values beyond {limit:g}, the largest of {dtype}, and "
            f"keep the source's data type; config.json says {config_dtype}, as a runtime that converts all "
            f"weights to {dtype} would make them infinite.",
            units={unit: {"tensors": list(names), "largest": largest[unit]} for unit, names in kept.items()},
            dtype=config_dtype,
        )
    converted = {n: lost for n, lost in counted.items() if not any(n in names for names in kept.values())}
    total = sum(converted.values(), Losses())
    if total.underflow:
        reporter.event(
            "export-underflows",
            f"Of {total.values} values, {total.to_zero} are too small for {dtype} and become zero, and "
            f"{total.to_subnormal} lose digits because they are below its normal range.",
            **_figures(converted, lambda lost: lost.underflow),
        )
    if total.changed > total.underflow:
        reporter.event(
            "export-rounds",
            f"{total.changed} of {total.values} values are rounded: {dtype} has fewer digits than they have.",
            **_figures(converted, lambda lost: lost.changed),
        )


def _figures(counted: Mapping[str, Losses], rank: Callable[[Losses], int]) -> dict[str, JsonValue]:
    affected = {name: lost for name, lost in counted.items() if rank(lost)}
    worst = sorted(affected, key=lambda name: (-rank(affected[name]), name))[:MOST_NAMED]
    return {"affected": len(affected), "tensors": {name: asdict(affected[name]) for name in worst}}


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
