"""Codes by simple rounding, and an artifact assembled from them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from quantflow.formats.assemble import run
from quantflow.formats.assembly import load_assembly
from quantflow.formats.params import AssembleParams
from quantflow.model.build import family_at
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize.codes import BlockCodes, LinearCodes, block_file, save_block
from quantflow.quantize.params import Scheme
from quantflow.source.checkpoint import Checkpoint, identity_of, save_checkpoint
from tests.reporting import RecordingReporter

GROUP_SIZE = 32
AWQ = Scheme(method="awq", bits=4, group_size=GROUP_SIZE)
GPTQ = Scheme(method="gptq", bits=4, group_size=GROUP_SIZE, symmetric=True)
PARAMS = AssembleParams(name="int4", format="awq", scheme=AWQ)
GPTQ_PARAMS = AssembleParams(name="int4", format="gptq", scheme=GPTQ)


@dataclass(frozen=True)
class Assembled:
    """What went into an artifact and where it is."""

    source: Path
    blocks: tuple[BlockCodes, ...]
    folder: Path


def rounded(weight: torch.Tensor, group_size: int = GROUP_SIZE, scheme: Scheme = AWQ) -> LinearCodes:
    """Round to the nearest of the levels between a group's smallest and largest value."""
    rows, columns = weight.shape
    levels, middle = 2**scheme.bits - 1, 2 ** (scheme.bits - 1)
    groups = weight.float().reshape(rows, -1, group_size)
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    if scheme.symmetric:
        scales = (groups.abs().amax(-1) / max(1, middle - 1)).clamp(min=1e-4).half()
        zero_points = torch.full_like(scales, middle).float()
    else:
        # Zero points are 1 at least, which every format can store.
        scales = ((high - low) / (levels - 1)).clamp(min=1e-4).half()
        zero_points = torch.round(-low / scales.float() + 1).clamp(1, levels)
    q = torch.round(groups / scales.float().unsqueeze(-1)) + zero_points.unsqueeze(-1)
    return LinearCodes(
        q=q.clamp(0, levels).to(torch.uint8).reshape(rows, columns),
        scales=scales,
        zero_points=zero_points.to(torch.uint8),
        bits=scheme.bits,
        group_size=group_size,
    )


def rounded_blocks(
    source: Path, model_type: str = "llama", scheme: Scheme = AWQ, *, into_linears: bool = False
) -> tuple[BlockCodes, ...]:
    """Codes of every block, with a scale folded into each norm where the scheme is of AWQ.

    Args:
        source: The model.
        model_type: Its family.
        scheme: How to round.
        into_linears: Whether scales are folded into linears, too, where shapes allow.
    """
    reader, family = SafetensorsReader(source), family_at(source, model_type)
    generator = torch.Generator().manual_seed(0)
    blocks = []
    index = 0
    while f"{family.block_name(index)}.input_layernorm.weight" in reader.names():
        prefix = family.block_name(index)
        folds: dict[str, torch.Tensor] = {}
        columns: dict[str, torch.Tensor] = {}
        rows: dict[str, torch.Tensor] = {}
        for fold in family.folds if "awq" in scheme.method else ():
            before = f"{prefix}.{fold.into}.weight"
            shape = reader.spec(before).shape
            first = family.units[fold.unit][0]
            fits = shape[0] == reader.spec(f"{prefix}.{first}.weight").shape[1]
            if len(shape) == 1 or (into_linears and fits):
                scale = 0.5 + torch.rand(shape[0], generator=generator)
                folds[before] = scale
                columns |= dict.fromkeys(family.units[fold.unit], scale)
                rows[fold.into] = scale
        linears = {}
        for name in family.linears:
            weight = reader.read(f"{prefix}.{name}.weight").float() * columns.get(name, 1.0)
            if name in rows:
                weight = weight / rows[name].unsqueeze(1)
            linears[f"{prefix}.{name}"] = rounded(weight, scheme.group_width(weight.shape[1]), scheme)
        blocks.append(BlockCodes(linears, folds))
        index += 1
    return tuple(blocks)


def stage_inputs(
    root: Path, source: Path, blocks: tuple[BlockCodes, ...], dtype: str, scheme: Scheme
) -> Mapping[str, Path]:
    """Outputs of a source and a quantize stage."""
    inputs = {role: root / role for role in ("source", "codes")}
    for folder in inputs.values():
        folder.mkdir(parents=True)
    files = {"config.json": "0" * 64}
    model_type = json.loads((source / "config.json").read_text())["model_type"]
    save_checkpoint(
        inputs["source"],
        Checkpoint(source, identity_of(files), "folder", str(source), dtype, model_type, 1, 1, files),
    )
    for index, block in enumerate(blocks):
        path = block_file(inputs["codes"], scheme.id, index)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_block(path, block)
    return inputs


def assembled(
    root: Path,
    source: Path,
    blocks: tuple[BlockCodes, ...],
    dtype: str,
    reporter: RecordingReporter | None = None,
    params: AssembleParams = PARAMS,
) -> Assembled:
    """Run the stage."""
    inputs = stage_inputs(root, source, blocks, dtype, params.scheme)
    output = root / "output"
    output.mkdir()
    run(params, inputs, output, reporter or RecordingReporter())
    return Assembled(source, blocks, load_assembly(output).folder)
