"""The stages that run tasks in ONNX Runtime: the lossless graph once, artifacts on the same prompts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quantflow.errors import ArtifactError, SourceError
from quantflow.formats.assembly import artifact_folder
from quantflow.formats.folder import CONFIG_FILE
from quantflow.formats.onnx.base import load_base
from quantflow.model.config import load_config
from quantflow.model.tokenizer import load_tokenizer
from quantflow.pipeline.events import Reporter
from quantflow.runtime.ort import OnnxModel
from quantflow.source.checkpoint import load_checkpoint
from quantflow.tasks.graph_text import NOISE_PIECE, GraphText
from quantflow.tasks.params import OnnxTasksParams
from quantflow.tasks.record import save_tasks
from quantflow.tasks.records import task_records


def baseline(params: OnnxTasksParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Run all tasks on the lossless graph, and some items again in smaller pieces.

    Args:
        params: Tasks and session options.
        inputs: Finished outputs of `source` and `base`.
        output: Folder for tasks.json.
        reporter: Receives progress and events, and keeps what interruptions would cost.

    Raises:
        TaskError: A task cannot be run.
        SourceError: A logit is not finite.
        ArtifactError: ONNX Runtime cannot load or run the graph.
    """
    source = load_checkpoint(inputs["source"]).folder
    model, config = OnnxModel(load_base(inputs["base"]).folder, params.session), load_config(source)
    usual, again = (GraphText(model, config, SourceError, at_once) for at_once in (None, NOISE_PIECE))
    tokenizer = load_tokenizer(source, SourceError)
    save_tasks(output, task_records(params, tokenizer, usual, again, reporter))


def artifact(params: OnnxTasksParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Run all tasks on an artifact, with the tokenizer that it ships with.

    Args:
        params: The baseline's.
        inputs: Finished outputs of `source` and `assemble`.
        output: Folder for tasks.json.
        reporter: Receives progress and events, and keeps what interruptions would cost.

    Raises:
        TaskError: A task cannot be run.
        ArtifactError: ONNX Runtime cannot load or run it, it has no tokenizer, or a logit is not finite.
    """
    folder = artifact_folder(inputs["assemble"])
    tokenizer = load_tokenizer(folder, ArtifactError)
    model = GraphText(OnnxModel(folder, params.session), own_config(folder, inputs["source"]), ArtifactError)
    save_tasks(output, task_records(params, tokenizer, model, None, reporter))


def own_config(folder: Path, source_output: Path) -> Any:
    """An artifact's config; the source's where it has none, as a bare graph may have."""
    has_one = (folder / CONFIG_FILE).is_file()
    return load_config(folder if has_one else load_checkpoint(source_output).folder)
