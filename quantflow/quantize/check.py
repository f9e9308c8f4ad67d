"""The check stage: refuses within seconds what quantization would otherwise refuse after hours."""

import json
from collections.abc import Mapping
from pathlib import Path

from quantflow.errors import RecipeError, SourceError
from quantflow.model.build import family_at
from quantflow.model.config import load_config
from quantflow.model.families import Family
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.quantize.params import CheckParams
from quantflow.source.checkpoint import load_checkpoint

GROUP_SIZES = (32, 64, 128)
"""What recipes offer; 32 divides what the others divide."""


def run(params: CheckParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Look at the model's config and tensor shapes, not at its weights.

    Writes `check.json`: the linears that will be quantized, with their shapes.

    Raises:
        RecipeError: The architecture is not supported or is none that a method works on, a group size does
            not divide a layer's input width, or windows are longer than the model's context.
        SourceError: A linear or a block of the architecture is missing.
    """
    checkpoint = load_checkpoint(inputs["source"])
    family = family_at(checkpoint.folder, checkpoint.model_type)
    _check_methods(params.methods, family, reporter)
    reader = SafetensorsReader(checkpoint.folder)
    prefix = f"{family.blocks}."
    blocks = {
        name.removeprefix(prefix).partition(".")[0] for name in reader.names() if name.startswith(prefix)
    }
    config = load_config(checkpoint.folder)
    if blocks != {str(index) for index in range(config.num_hidden_layers)}:
        raise SourceError(
            f"config.json says {config.num_hidden_layers} blocks, the weights hold {len(blocks)}",
            where=str(checkpoint.folder),
            hint="Weights and config.json do not belong together.",
        )
    _check_context(getattr(config, "max_position_embeddings", None), params.window_lengths)
    shapes = {
        f"{prefix}{block}.{linear}": list(reader.spec(f"{prefix}{block}.{linear}.weight").shape)
        for block in sorted(blocks, key=int)
        for linear in family.linears
    }
    for key, group_size in params.group_sizes.items():
        _check_group_size(key, group_size, shapes)
    (output / "check.json").write_text(json.dumps({"linears": shapes}, indent=1, sort_keys=True))


def _check_methods(methods: Mapping[str, str], family: Family, reporter: Reporter) -> None:
    """Refuse AWQ where no scale can be folded, and tell where only some units can be scaled."""
    scaled = {fold.unit for fold in family.folds}
    unscaled = [unit for unit in family.units if unit not in scaled]
    for key, method in methods.items():
        if not method.startswith("awq") or not unscaled:
            continue
        if not scaled:
            raise RecipeError(
                f"{method} moves scales into what comes before each layer, and where that is is known of "
                f"listed architectures only, of which {family.model_type!r} is none",
                where=key,
                hint="gptq and rtn work on it.",
            )
        reporter.event(
            "awq-without-scales",
            f"No norm comes before {', '.join(unscaled)} in a block of {family.model_type}: {method} "
            "searches no scales there and clips only.",
            units=list(unscaled),
        )


def _check_context(context: int | None, window_lengths: Mapping[str, int]) -> None:
    for key, length in window_lengths.items():
        if context is not None and length > context:
            raise RecipeError(
                f"windows of {length} tokens do not fit the model, which was made for {context}",
                where=key,
                hint=f"Set {' and '.join(window_lengths)} to {context} or less; left out, each is 2048.",
            )


def _check_group_size(key: str, group_size: int, shapes: Mapping[str, list[int]]) -> None:
    for name, (_, width) in shapes.items():
        if not any(width % size == 0 for size in GROUP_SIZES):
            raise RecipeError(
                f"{name} has {width} input channels, which no group size divides",
                where=key,
                hint=f"Group sizes are {', '.join(map(str, GROUP_SIZES))}: none fits this model.",
            )
    fitting = [size for size in GROUP_SIZES if not any(width % size for _, width in shapes.values())]
    for name, (_, width) in shapes.items():
        if width % group_size:
            raise RecipeError(
                f"group_size {group_size} does not divide the {width} input channels of {name}",
                where=key,
                hint=f"Group sizes that divide every layer: {', '.join(map(str, fitting))}.",
            )
