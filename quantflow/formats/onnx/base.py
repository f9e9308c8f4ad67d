"""The onnx-base stage: the lossless graph that every ONNX artifact is made of and measured against."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quantflow.errors import RecipeError
from quantflow.formats.onnx.builder import ARCHITECTURES, build_graph_folder
from quantflow.formats.onnx.graph_file import GraphFile
from quantflow.formats.onnx.linears import GraphLinear, Part, graph_linears
from quantflow.formats.onnx.params import GRAPH_FILE, OnnxBaseParams
from quantflow.model.build import family_at
from quantflow.model.config import load_config
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
        precision: What it computes in: `fp32` or `fp16`.
        linears: Its linear layers.
    """

    folder: Path
    builder: str
    precision: str
    linears: tuple[GraphLinear, ...]


def run(params: OnnxBaseParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Write the graph to `graph/` and what is known of its linears to `base.json`.

    Raises:
        RecipeError: The builder does not know the architecture.
        QuantizationError: It does not take the model, or the graph does not hold the model's weights.
        ArtifactError: It dies or leaves no sound graph.
        RuntimeUnavailableError: It is not installed.
    """
    checkpoint = load_checkpoint(inputs["source"])
    require_architecture(checkpoint.folder)
    work = reporter.progress_folder / "builder"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    folder = output / BASE_FOLDER
    with reporter.track("Building the lossless graph", 2) as advance:
        build_graph_folder(params, checkpoint.folder, folder, work)
        advance(1)
        graph = GraphFile(folder / GRAPH_FILE)
        family = family_at(checkpoint.folder, checkpoint.model_type)
        linears = graph_linears(graph, family, checkpoint.folder)
        advance(1)
    shutil.rmtree(work)
    record = {
        "builder": params.builder,
        "precision": params.precision,
        "linears": [asdict(linear) for linear in linears],
    }
    (output / _RECORD).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def require_architecture(checkpoint: Path, where: str = "model.source") -> None:
    """Refuse a model that no graph can be made of.

    Raises:
        RecipeError: The builder does not know its architecture.
    """
    names = getattr(load_config(checkpoint), "architectures", None) or []
    if not ARCHITECTURES.intersection(names):
        raise RecipeError(
            f"the ONNX Runtime GenAI builder makes no graph of {', '.join(names) or 'this model'}",
            where=where,
            hint=f"ONNX artifacts are made of {', '.join(sorted(ARCHITECTURES))}.",
        )


def load_base(stage_output: Path) -> BaseGraph:
    """Read what the stage wrote."""
    record = json.loads((stage_output / _RECORD).read_text(encoding="utf-8"))
    linears = tuple(_linear(entry) for entry in record["linears"])
    return BaseGraph(stage_output / BASE_FOLDER, record["builder"], record["precision"], linears)


def _linear(entry: Mapping[str, Any]) -> GraphLinear:
    parts = tuple(
        Part(part["linear"], None if part["rows"] is None else (part["rows"][0], part["rows"][1]))
        for part in entry["parts"]
    )
    return GraphLinear(entry["weight"], entry["unit"], parts, entry["inputs"], entry["outputs"])
