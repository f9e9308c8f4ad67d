"""Graphs of models that the GenAI builder does not know, made by torch.onnx.export."""

from pathlib import Path

from quantflow.errors import RecipeError
from quantflow.formats.onnx import export_program
from quantflow.formats.onnx.builder import ARCHITECTURES
from quantflow.formats.onnx.maker import Maker, run_maker
from quantflow.formats.onnx.params import OnnxBaseParams
from quantflow.model.config import load_config
from quantflow.model.families import Family
from quantflow.model.units import HEAD

# Imported, so that what the program does is part of the key of the stage that runs it; it runs elsewhere.
EXPORTER = Maker(
    name="torch.onnx.export",
    module=export_program.__name__,
    refuses=export_program.REFUSAL,
    hint="ONNX artifacts cannot be made of this model here; `format: gptq` or `awq` may do, or a checkpoint "
    f"of one of {', '.join(sorted(ARCHITECTURES))}.",
)


def architecture(checkpoint: Path) -> str:
    """The name of the model's class, as its config.json has it; empty where it has none."""
    names = getattr(load_config(checkpoint), "architectures", None) or [""]
    return str(names[0])


def is_exported(checkpoint: Path) -> bool:
    """Whether torch makes the graph, because the builder does not know the architecture."""
    return architecture(checkpoint) not in ARCHITECTURES


def require_graph(checkpoint: Path, family: Family, where: str = "model.source") -> None:
    """Refuse a model that no graph can be made of, as far as its config and its modules tell.

    Args:
        checkpoint: The model's folder.
        family: Its family.
        where: Key of the recipe, for messages.

    Raises:
        RecipeError: The builder does not know its architecture, and a graph made otherwise has no head where
            QuantFlow looks for it.
    """
    if is_exported(checkpoint) and HEAD not in family.outside:
        raise RecipeError(
            f"no ONNX graph can be made of {architecture(checkpoint) or family.model_type}: the ONNX Runtime "
            f"GenAI builder does not know it, and it has no {HEAD}, which a graph of torch.onnx.export is "
            "measured by",
            where=where,
            hint=EXPORTER.hint,
        )


def export_graph_folder(
    params: OnnxBaseParams, checkpoint: Path, folder: Path, work: Path, exporter: Maker = EXPORTER
) -> None:
    """Let torch make the graph of a checkpoint.

    Args:
        params: Precision and provider.
        checkpoint: The model's folder.
        folder: Where model.onnx, model.onnx.data and genai_config.json are to be; does not exist yet.
        work: An empty folder for what it writes besides, and what it says.
        exporter: The program.

    Raises:
        RecipeError: It is to be made for a GPU.
        QuantizationError: torch does not get through the model.
        ArtifactError: It dies or leaves no graph.
        OSError: The disk is full.
    """
    if params.provider != "cpu":
        raise RecipeError(
            f"the ONNX Runtime GenAI builder does not know {architecture(checkpoint)}, and graphs of "
            "torch.onnx.export are made for processors only",
            where="runtime.device",
            hint="Set runtime.device to cpu for a recipe of ONNX artifacts.",
        )
    run_maker(exporter, [str(checkpoint), str(folder)], checkpoint, folder, work)
