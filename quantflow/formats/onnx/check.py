"""The onnx-check stage: refuses within seconds what making ONNX artifacts would refuse after an hour."""

import json
from collections.abc import Mapping
from pathlib import Path

from quantflow.errors import RecipeError
from quantflow.formats.onnx.exporting import require_graph
from quantflow.formats.onnx.linears import weight_name
from quantflow.formats.onnx.params import OnnxCheckParams, PlannedOnnx
from quantflow.model.build import family_at
from quantflow.model.config import load_config
from quantflow.model.units import HEAD, kept_of_all, units_of
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import load_checkpoint


def run(params: OnnxCheckParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Look at the model's config and tensor shapes, not at its weights; writes `check.json`.

    Raises:
        RecipeError: No graph can be made of the architecture, `keep` names what is no unit, or blocks do not
            divide the inputs of a layer.
    """
    checkpoint = load_checkpoint(inputs["source"])
    family = family_at(checkpoint.folder, checkpoint.model_type)
    require_graph(checkpoint.folder, family)
    blocks = load_config(checkpoint.folder).num_hidden_layers
    reader = SafetensorsReader(checkpoint.folder)
    units = {**units_of(family, blocks), HEAD: (HEAD,)}
    widths = {
        linear: reader.shape(weight_name(linear, reader))[1]
        for linears in units.values()
        for linear in linears
    }
    with reporter.track("checking ONNX artifacts", len(params.artifacts)) as advance:
        for key, artifact in params.artifacts.items():
            kept = kept_of_all(artifact.keep, family, blocks, f"{key}.keep")
            quantized = [linear for unit, linears in units.items() if unit not in kept for linear in linears]
            _check_blocks(key, artifact, {linear: widths[linear] for linear in quantized})
            advance(1)
    (output / "check.json").write_text(json.dumps({"inputs": widths}, indent=1, sort_keys=True) + "\n")


def _check_blocks(key: str, artifact: PlannedOnnx, widths: Mapping[str, int]) -> None:
    size = artifact.block_size
    misfit = next((name for name, width in sorted(widths.items()) if size and width % size), None)
    if misfit is not None:
        raise RecipeError(
            f"block_size {size} does not divide the {widths[misfit]} input channels of {misfit}",
            where=f"{key}.block_size",
            hint="Choose a smaller one, or name its unit in `keep`.",
        )
