"""The check stage: refuses within seconds what quantization would otherwise refuse after hours."""

import json
from collections.abc import Mapping
from pathlib import Path

from quantflow.errors import RecipeError, SourceError
from quantflow.formats.layouts import LAYOUTS
from quantflow.model.build import family_at
from quantflow.model.config import load_config
from quantflow.model.families import Family
from quantflow.model.units import FORCE_KEY, kept_units, named_units, require_disjoint, units_of
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.quantize.params import CheckParams, PlannedArtifact
from quantflow.source.checkpoint import load_checkpoint

GROUP_SIZES = (32, 64, 128)
"""What recipes offer beside whole rows; 32 divides what the others divide."""

MARLIN_BITS = (4, 8)
"""Widths that vLLM's fast kernels for GPTQ take, symmetric ones only."""

Shapes = Mapping[str, tuple[int, ...]]


def run(params: CheckParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Look at the model's config and tensor shapes, not at its weights.

    Writes `check.json`: the linears that will be quantized, with their shapes.

    Raises:
        RecipeError: The architecture is not supported or is none that a method works on, `keep` names what is
            no unit, a layer that is to be quantized does not suit a group size or a format, or windows are
            longer than the model's context.
        SourceError: A linear or a block of the architecture is missing.
    """
    checkpoint = load_checkpoint(inputs["source"])
    family = family_at(checkpoint.folder, checkpoint.model_type)
    methods = {f"{key}.method": artifact.scheme.method for key, artifact in params.artifacts.items()}
    _check_methods(methods, family, reporter)
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
    units = units_of(family, len(blocks))
    shapes = {
        linear: reader.spec(f"{linear}.weight").shape for linears in units.values() for linear in linears
    }
    of_all = kept_units(params.keep, family, len(blocks), "sensitivity.keep")
    forced = named_units(params.force, family, len(blocks), FORCE_KEY)
    require_disjoint(of_all, forced, FORCE_KEY)
    for key, artifact in params.artifacts.items():
        kept = kept_units(artifact.keep, family, len(blocks), f"{key}.keep") | of_all
        require_disjoint(kept, forced, f"{key}.keep")
        quantized = {linear: shapes[linear] for unit in units.keys() - kept for linear in units[unit]}
        _check_group_size(f"{key}.group_size", artifact.scheme.group_size, quantized)
        _check_layout(key, artifact, quantized)
        _tell_kernels(key, artifact, reporter)
    content = {linear: list(shape) for linear, shape in shapes.items()}
    (output / "check.json").write_text(json.dumps({"linears": content}, indent=1, sort_keys=True))


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


def _check_group_size(key: str, group_size: int, shapes: Shapes) -> None:
    if group_size == -1:
        return
    misfits = {name: width for name, (_, width) in sorted(shapes.items()) if width % group_size}
    if not misfits:
        return
    name, width = next(iter(misfits.items()))
    fitting = [size for size in GROUP_SIZES if not any(width % size for _, width in shapes.values())]
    if fitting:
        nearest = min(fitting, key=lambda size: abs(size - group_size))
        hint = f"The nearest that divides every layer is {nearest}."
    else:
        sizes = ", ".join(map(str, GROUP_SIZES))
        hint = f"None of {sizes} divides every layer; `keep` can leave a unit as it is."
    raise RecipeError(
        f"group_size {group_size} does not divide the {width} input channels of {name}", where=key, hint=hint
    )


def _check_layout(key: str, artifact: PlannedArtifact, shapes: Shapes) -> None:
    for name, (outputs, inputs) in sorted(shapes.items()):
        why = LAYOUTS[artifact.format].obstacle(outputs, inputs, artifact.scheme.bits)
        if why:
            raise RecipeError(
                f"{name} has {outputs} outputs and {inputs} inputs, and {why}",
                where=key,
                hint="Name its unit in `keep` to leave it as it is"
                + (", or choose other bits." if artifact.format == "gptq" else "."),
            )


def _tell_kernels(key: str, artifact: PlannedArtifact, reporter: Reporter) -> None:
    scheme = artifact.scheme
    if artifact.format == "gptq" and not (scheme.symmetric and scheme.bits in MARLIN_BITS):
        symmetry = "symmetric" if scheme.symmetric else "asymmetric"
        reporter.event(
            "no-marlin-kernel",
            f"{key} is {symmetry} with {scheme.bits} bits: vLLM's Marlin kernels take symmetric GPTQ with 4 "
            "or 8 bits only, and slower ones run this.",
            artifact=key,
        )
