"""The onnx-base stage: the lossless graph that every ONNX artifact is made of and measured against."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from quantflow.formats.onnx.agreement import require_agreement
from quantflow.formats.onnx.builder import BUILDER, build_graph_folder
from quantflow.formats.onnx.exporting import EXPORTER, architecture, export_graph_folder, is_exported
from quantflow.formats.onnx.graph_file import GraphFile
from quantflow.formats.onnx.linears import GraphLinear, Part, graph_linears
from quantflow.formats.onnx.params import GRAPH_FILE, OnnxBaseParams
from quantflow.formats.onnx.rewrite import require_opset
from quantflow.model.build import family_at
from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import load_checkpoint

BASE_FOLDER = "graph"
_RECORD = "base.json"


@dataclass(frozen=True)
class BaseGraph:
    """The finished output of the stage.

    Attributes:
        folder: Folder with model.onnx, model.onnx.data and genai_config.json.
        builder: The package that made it, and its version.
        is_exported: Whether torch.onnx.export made it, the GenAI builder not knowing the architecture.
        precision: What it computes in: `fp32` or `fp16`.
        linears: Its linear layers.
    """

    folder: Path
    builder: str
    is_exported: bool
    precision: str
    linears: tuple[GraphLinear, ...]


def run(params: OnnxBaseParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Write the graph to `graph/` and what is known of its linears to `base.json`.

    In float32 it is held against the model in torch first: products by their weights, all of it by logits.

    Raises:
        RecipeError: The builder does not know the architecture, and torch makes graphs for processors only.
        QuantizationError: The model is not taken, or the graph does not hold the model's weights or says
            something else than the model.
        ArtifactError: The program that makes it dies or leaves no sound graph.
        RuntimeUnavailableError: The builder is not installed.
    """
    checkpoint = load_checkpoint(inputs["source"])
    exported = is_exported(checkpoint.folder)
    maker, made_by = (EXPORTER, f"torch {version('torch')}") if exported else (BUILDER, params.builder)
    if exported:
        named = architecture(checkpoint.folder) or checkpoint.model_type
        reporter.event(
            "graph-exported-by-torch",
            f"The ONNX Runtime GenAI builder does not know {named}: "
            "torch.onnx.export makes the graph, without the builder's fused attention.",
            architecture=named,
            made_by=made_by,
        )
    work = reporter.progress_folder / "maker"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    folder = output / BASE_FOLDER
    make = export_graph_folder if exported else build_graph_folder
    with reporter.track("Making the lossless graph", 3) as advance:
        make(params, checkpoint.folder, folder, work)
        advance(1)
        graph = GraphFile(folder / GRAPH_FILE)
        require_opset(graph)  # here and not after calibration
        family = family_at(checkpoint.folder, checkpoint.model_type)
        linears = graph_linears(graph, family, checkpoint.folder)
        advance(1)
        if params.precision == "fp32":
            require_agreement(folder, checkpoint.folder, maker.name, work)
        advance(1)
    shutil.rmtree(work)
    record = {
        "builder": made_by,
        "is_exported": exported,
        "precision": params.precision,
        "linears": [asdict(linear) for linear in linears],
    }
    (output / _RECORD).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def load_base(stage_output: Path) -> BaseGraph:
    """Read what the stage wrote."""
    record = json.loads((stage_output / _RECORD).read_text(encoding="utf-8"))
    linears = tuple(_linear(entry) for entry in record["linears"])
    return BaseGraph(
        stage_output / BASE_FOLDER, record["builder"], record["is_exported"], record["precision"], linears
    )


def _linear(entry: Mapping[str, Any]) -> GraphLinear:
    parts = tuple(
        Part(part["linear"], None if part["rows"] is None else (part["rows"][0], part["rows"][1]))
        for part in entry["parts"]
    )
    return GraphLinear(entry["weight"], entry["unit"], parts, entry["inputs"], entry["outputs"])
