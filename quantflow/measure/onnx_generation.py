"""The stages that let the lossless graph and an ONNX artifact go on with the same prompts in ONNX Runtime."""

from collections.abc import Mapping
from pathlib import Path

from quantflow.errors import ArtifactError, SourceError
from quantflow.formats.assembly import artifact_folder
from quantflow.formats.onnx.base import load_base
from quantflow.measure.generation_record import load_generation, save_generation
from quantflow.measure.onnx_params import OnnxGenerationParams
from quantflow.measure.prompted import answered_alike, answered_twice
from quantflow.model.config import load_config
from quantflow.model.tokenizer import load_tokenizer
from quantflow.pipeline.events import Reporter
from quantflow.runtime.ort import OnnxModel
from quantflow.source.checkpoint import load_checkpoint
from quantflow.tasks.graph_stage import own_config
from quantflow.tasks.graph_text import NOISE_PIECE, GraphText


def baseline(
    params: OnnxGenerationParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter
) -> None:
    """Let the lossless graph go on with the prompts, and once more with prompts in smaller pieces.

    Args:
        params: How many prompts, how long, and session options.
        inputs: Finished outputs of `source`, `base` and `data`.
        output: Folder for generation.json.
        reporter: Receives progress and events, and keeps what interruptions would cost.

    Raises:
        DataError: No evaluation document is long enough to make a prompt of.
        SourceError: A logit is not finite.
        ArtifactError: ONNX Runtime cannot load or run the graph.
    """
    source = load_checkpoint(inputs["source"]).folder
    model, config = OnnxModel(load_base(inputs["base"]).folder, params.session), load_config(source)
    usual, again = (GraphText(model, config, SourceError, at_once) for at_once in (None, NOISE_PIECE))
    tokenizer = load_tokenizer(source, SourceError)
    save_generation(output, answered_twice(usual, again, source, tokenizer, inputs["data"], params, reporter))


def artifact(
    params: OnnxGenerationParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter
) -> None:
    """Let an artifact go on with the baseline's prompts; it stops where its own files say a text ends.

    Args:
        params: The baseline's.
        inputs: Finished outputs of `source`, `generation` and `assemble`.
        output: Folder for generation.json.
        reporter: Receives progress, and keeps what interruptions would cost.

    Raises:
        ArtifactError: ONNX Runtime cannot load or run it, it has no tokenizer, or a logit is not finite.
    """
    folder = artifact_folder(inputs["assemble"])
    tokenizer = load_tokenizer(folder, ArtifactError)
    config = own_config(folder, inputs["source"])
    model = GraphText(OnnxModel(folder, params.session), config, ArtifactError)
    asked = load_generation(inputs["generation"])
    save_generation(output, answered_alike(model, folder, tokenizer, asked, params, reporter))
