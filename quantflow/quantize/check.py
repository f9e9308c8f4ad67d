"""The check stage: refuses within seconds what quantization would otherwise refuse after hours."""

import json
from collections.abc import Mapping
from pathlib import Path

from quantflow.errors import RecipeError, SourceError
from quantflow.model.families import family_of
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.quantize.params import CheckParams
from quantflow.source.checkpoint import load_checkpoint


def run(params: CheckParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Look at the model's config and tensor shapes, not at its weights.

    Writes `check.json`: the linears that will be quantized, with their shapes.

    Raises:
        RecipeError: The architecture is not supported, or a group size does not divide a layer's input width.
        SourceError: A linear of the architecture is missing.
    """
    checkpoint = load_checkpoint(inputs["source"])
    family = family_of(checkpoint.model_type)
    reader = SafetensorsReader(checkpoint.folder)
    prefix = f"{family.blocks}."
    blocks = {
        name.removeprefix(prefix).partition(".")[0] for name in reader.names() if name.startswith(prefix)
    }
    if not blocks:
        raise SourceError(f"has no tensors named {prefix}…", where=str(checkpoint.folder))
    shapes = {
        f"{prefix}{block}.{linear}": list(reader.spec(f"{prefix}{block}.{linear}.weight").shape)
        for block in sorted(blocks, key=int)
        for linear in family.linears
    }
    for artifact, group_size in params.group_sizes.items():
        _check_group_size(artifact, group_size, shapes)
    (output / "check.json").write_text(json.dumps({"linears": shapes}, indent=1, sort_keys=True))


def _check_group_size(artifact: str, group_size: int, shapes: Mapping[str, list[int]]) -> None:
    for name, (_, width) in shapes.items():
        if width % group_size:
            fitting = [size for size in (32, 64, 128) if not any(w % size for _, w in shapes.values())]
            raise RecipeError(
                f"group_size {group_size} does not divide the {width} input channels of {name}",
                where=f"artifact {artifact}",
                hint=f"Group sizes that divide every layer: {', '.join(map(str, fitting)) or 'none'}.",
            )
