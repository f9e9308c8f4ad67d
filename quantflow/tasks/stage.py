"""The stages that run tasks in torch: the baseline once, artifacts on the same prompts and batches."""

from collections.abc import Mapping
from pathlib import Path

from quantflow.errors import ArtifactError, QuantFlowError, SourceError
from quantflow.formats.assembly import artifact_folder
from quantflow.formats.read import open_artifact
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.resident import resident, room_for_weights
from quantflow.model.tokenizer import load_tokenizer
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import load_checkpoint
from quantflow.tasks.params import TasksParams
from quantflow.tasks.record import TaskRecord, save_tasks
from quantflow.tasks.records import task_records
from quantflow.tasks.scoring import TorchText


def baseline(params: TasksParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Run all tasks on the lossless model, and some items again in batches of half the size.

    Args:
        params: Tasks, device and size of batches.
        inputs: Finished output of `source`.
        output: Folder for tasks.json.
        reporter: Receives progress and events, and keeps what interruptions would cost.

    Raises:
        TaskError: A task cannot be run.
        SourceError: The model is damaged.
    """
    folder = load_checkpoint(inputs["source"]).folder
    decoder = StreamedDecoder(folder, SafetensorsReader(folder), params.device)
    save_tasks(output, _records(decoder, params, SourceError, reporter, noise=True))


def artifact(params: TasksParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Run all tasks on an artifact, with the tokenizer that it ships with.

    Args:
        params: The baseline's.
        inputs: Finished output of `assemble`.
        output: Folder for tasks.json.
        reporter: Receives progress and events, and keeps what interruptions would cost.

    Raises:
        TaskError: A task cannot be run.
        ArtifactError: The artifact is damaged.
    """
    folder = artifact_folder(inputs["assemble"])
    decoder = StreamedDecoder(folder, open_artifact(folder), params.device)
    save_tasks(output, _records(decoder, params, ArtifactError, reporter, noise=False))


def _records(
    decoder: StreamedDecoder,
    params: TasksParams,
    error: type[QuantFlowError],
    reporter: Reporter,
    *,
    noise: bool,
) -> list[TaskRecord]:
    tokenizer = load_tokenizer(decoder.folder, error)
    with resident(decoder, room_for_weights(decoder.device)) as stays:
        usual = TorchText(decoder, params.batch_tokens, error, stays=stays)
        halved = max(1, params.batch_tokens // 2)
        again = TorchText(decoder, halved, error, stays=stays) if noise else None
        return task_records(params, tokenizer, usual, again, reporter)
