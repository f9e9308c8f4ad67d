"""Codes by simple rounding, and an artifact assembled from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from quantflow.formats.assemble import run
from quantflow.formats.assembly import load_assembly
from quantflow.formats.params import AssembleParams
from quantflow.model.families import family_of
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize.codes import BlockCodes, LinearCodes, block_file, save_block
from quantflow.source.checkpoint import Checkpoint, identity_of, save_checkpoint
from tests.reporting import RecordingReporter

GROUP_SIZE = 32
PARAMS = AssembleParams(name="int4", format="awq", bits=4, group_size=GROUP_SIZE)


@dataclass(frozen=True)
class Assembled:
    """What went into an artifact and where it is."""

    source: Path
    blocks: tuple[BlockCodes, ...]
    folder: Path


def rounded(weight: torch.Tensor, group_size: int = GROUP_SIZE) -> LinearCodes:
    """Round to the nearest of sixteen levels between a group's smallest and largest value."""
    rows, columns = weight.shape
    groups = weight.float().reshape(rows, -1, group_size)
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scales = ((high - low) / 15).clamp(min=1e-4).half()
    zero_points = torch.round(-low / scales.float()).clamp(0, 15)
    q = torch.round(groups / scales.float().unsqueeze(-1)) + zero_points.unsqueeze(-1)
    return LinearCodes(
        q=q.clamp(0, 15).to(torch.uint8).reshape(rows, columns),
        scales=scales,
        zero_points=zero_points.to(torch.uint8),
        bits=4,
        group_size=group_size,
    )


def rounded_blocks(source: Path, model_type: str = "llama") -> tuple[BlockCodes, ...]:
    """Codes of every block, with a scale folded into each norm."""
    reader, family = SafetensorsReader(source), family_of(model_type)
    generator = torch.Generator().manual_seed(0)
    blocks = []
    index = 0
    while f"{family.block_name(index)}.input_layernorm.weight" in reader.names():
        prefix = family.block_name(index)
        folds: dict[str, torch.Tensor] = {}
        scales: dict[str, torch.Tensor] = {}
        for fold in family.folds:
            norm = f"{prefix}.{fold.into}.weight"
            if len(reader.spec(norm).shape) == 1:
                scale = 0.5 + torch.rand(reader.spec(norm).shape, generator=generator)
                folds[norm] = scale
                scales |= dict.fromkeys(family.units[fold.unit], scale)
        linears = {
            f"{prefix}.{name}": rounded(
                reader.read(f"{prefix}.{name}.weight").float() * scales.get(name, 1.0)
            )
            for name in family.linears
        }
        blocks.append(BlockCodes(linears, folds))
        index += 1
    return tuple(blocks)


def stage_inputs(root: Path, source: Path, blocks: tuple[BlockCodes, ...], dtype: str) -> Mapping[str, Path]:
    """Outputs of a source and a quantize stage."""
    inputs = {role: root / role for role in ("source", "quantize")}
    for folder in inputs.values():
        folder.mkdir(parents=True)
    files = {"config.json": "0" * 64}
    model_type = "llama"
    save_checkpoint(
        inputs["source"],
        Checkpoint(source, identity_of(files), "folder", str(source), dtype, model_type, 1, 1, files),
    )
    for index, block in enumerate(blocks):
        path = block_file(inputs["quantize"], index)
        path.parent.mkdir(exist_ok=True)
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
    inputs = stage_inputs(root, source, blocks, dtype)
    output = root / "output"
    output.mkdir()
    run(params, inputs, output, reporter or RecordingReporter())
    return Assembled(source, blocks, load_assembly(output).folder)
