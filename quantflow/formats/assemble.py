"""The assemble stage: codes and what is not quantized become a directory that a runtime loads.

Goes block by block and file by file; in memory are one block's codes and one tensor.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor

from quantflow.errors import QuantizationError, SourceError
from quantflow.formats.assembly import ARTIFACT_FOLDER, Assembly, save_assembly
from quantflow.formats.awq import WEIGHT, linear_tensors, quantization_config
from quantflow.formats.folder import (
    CONFIG_FILE,
    MAX_SHARD_BYTES,
    artifact_config,
    copy_companions,
    folder_bytes,
    write_json,
    write_provenance,
)
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
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.quantize.codes import BlockCodes, LinearCodes, block_file, load_block, quantized_linears
from quantflow.source.checkpoint import load_checkpoint


def run(params: AssembleParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Write the artifact to `artifact/` and what it came to, `assemble.json`.

    Raises:
        QuantizationError: If codes do not fit the source or the format, or a value does not fit the dtype it
            is to be stored in.
        SourceError: If the source cannot be read.
        StoreError: If a block's codes cannot be read.
    """
    checkpoint = load_checkpoint(inputs["source"])
    reader = SafetensorsReader(checkpoint.folder)
    family = family_at(checkpoint.folder, checkpoint.model_type)
    blocks = 1 + max((block_of(name, family) or 0 for name in reader.names()), default=0)
    quantized = frozenset[str]().union(
        *(quantized_linears(block_file(inputs["quantize"], index)) for index in range(blocks))
    )
    half_name = checkpoint.half_dtype
    half = getattr(torch, half_name)
    precisions = unit_precisions(family, blocks, quantized, params.bits, half_name)
    entries = plan_entries(reader, family, quantized, params.group_size, half)
    shards = plan_shards(entries, MAX_SHARD_BYTES)
    _report_conversions(entries, reader, half_name, reporter)

    folder = output / ARTIFACT_FOLDER
    folder.mkdir()
    with reporter.track(f"assemble {params.name}, tensors", len(entries)) as advance:
        for shard in shards:
            write_safetensors(
                folder / shard.file,
                [spec for entry in shard.entries for spec in entry.outputs],
                _shard_tensors(shard, reader, inputs["quantize"], params, family, advance),
                {"format": "pt"},
            )
    linears = {f"{family.block_name(index)}.{name}" for index in range(blocks) for name in family.linears}
    kept = tuple(sorted(linears - quantized))
    config = artifact_config(checkpoint, half_name)
    config["quantization_config"] = quantization_config(params.group_size, (*family.outside, *kept))
    for name, content in {CONFIG_FILE: config, **shard_index(shards)}.items():
        write_json(folder / name, content)
    copy_companions(checkpoint, folder)
    write_provenance(checkpoint, folder, {**params.model_dump(mode="json"), "precisions": precisions})
    open_artifact(folder)
    assembly = Assembly(
        folder=folder,
        name=params.name,
        format=params.format,
        bytes=folder_bytes(folder),
        weight_bytes=sum(entry.bytes for entry in entries),
        source_weight_bytes=sum(reader.spec(name).bytes for name in reader.names()),
        quantized_linears=len(quantized),
        kept_linears=kept,
    )
    save_assembly(output, assembly)


def _shard_tensors(
    shard: Shard,
    reader: SafetensorsReader,
    codes_folder: Path,
    params: AssembleParams,
    family: Family,
    advance: Callable[[int], None],
) -> Iterator[tuple[str, Tensor]]:
    for block, entries in groupby(shard.entries, key=lambda entry: entry.block):
        codes = BlockCodes({}, {}) if block is None else load_block(block_file(codes_folder, block))
        unknown = {name for name in codes.folds if name not in reader.names()}
        if unknown:
            raise QuantizationError(
                "a scale is folded into it, and the source has no such tensor", where=min(unknown)
            )
        for entry in entries:
            if entry.linear is None:
                (spec,) = entry.outputs
                tensor = reader.read(entry.source)
                offset = family.norm_offset if _is_norm_weight(entry.source, family) else 0.0
                yield spec.name, _kept_tensor(entry.source, tensor, codes.folds, spec.dtype, offset)
            else:
                linear = codes.linears[entry.linear]
                _check_codes(entry.linear, linear, reader.spec(entry.source).shape, params)
                yield from linear_tensors(entry.linear, linear).items()
            advance(1)


def _check_codes(name: str, codes: LinearCodes, shape: tuple[int, ...], params: AssembleParams) -> None:
    if codes.q.shape != shape:
        raise QuantizationError(
            f"has codes of shape {list(codes.q.shape)} for a weight of shape {list(shape)}", where=name
        )
    if (codes.bits, codes.group_size) != (params.bits, params.group_size):
        raise QuantizationError(
            f"has codes of {codes.bits} bits in groups of {codes.group_size}; the artifact is to have "
            f"{params.bits} bits in groups of {params.group_size}",
            where=name,
        )


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


def _report_conversions(
    entries: tuple[Entry, ...], reader: SafetensorsReader, half_name: str, reporter: Reporter
) -> None:
    converted = [
        entry.source
        for entry in entries
        if entry.linear is None and entry.outputs[0].dtype != reader.spec(entry.source).dtype
    ]
    if converted:
        reporter.event(
            f"stored-as-{half_name}",
            f"{len(converted)} tensors that are not quantized are stored in {half_name}: runtimes read AWQ "
            "models in 16-bit dtypes only.",
            tensors=len(converted),
            dtype=half_name,
        )
