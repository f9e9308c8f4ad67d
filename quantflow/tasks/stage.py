"""The stages that run tasks: the baseline once, every artifact on the same prompts in the same batches."""

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
from quantflow.tasks.adapter import RuntimeLM
from quantflow.tasks.params import TasksParams, TaskSpec
from quantflow.tasks.record import TaskNoise, TaskRecord, save_tasks
from quantflow.tasks.run import run_task
from quantflow.tasks.scoring import Batches

# Items that the baseline is run on once more in other batches: enough to see whether scores move at all.
NOISE_ITEMS = 64


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
    records = _records(decoder, params, ArtifactError, reporter, noise=False)
    save_tasks(output, [record.without_fields() for record in records])


def _records(
    decoder: StreamedDecoder,
    params: TasksParams,
    error: type[QuantFlowError],
    reporter: Reporter,
    *,
    noise: bool,
) -> list[TaskRecord]:
    tokenizer = load_tokenizer(decoder.folder, error)
    records = []
    with resident(decoder, room_for_weights(decoder.device)) as stays:

        def model(spec: TaskSpec, batch_tokens: int, mark: str = "") -> RuntimeLM:
            work = Batches(reporter, f"{spec.name}{mark}", f"Running {spec.name}{mark}, batches")
            return RuntimeLM(decoder, tokenizer, batch_tokens, work, error, stays=stays)

        for spec in params.tasks:
            usual = model(spec, params.batch_tokens)
            record = run_task(spec, params, usual)
            if usual.truncated:
                reporter.event(
                    "task-prompts-truncated",
                    f"{usual.truncated} prompts of {spec.name} are longer than the model's context and lost "
                    "their beginning.",
                    task=spec.name,
                    prompts=usual.truncated,
                    context=usual.max_length,
                )
            if noise:
                other = model(spec, max(1, params.batch_tokens // 2), " in other batches")
                again = run_task(spec, params, other, NOISE_ITEMS)
                record = record.model_copy(update={"noise": _noise(record, again)})
            records.append(record)
    return records


def _noise(usual: TaskRecord, again: TaskRecord) -> TaskNoise:
    before = {item.id: item.value for item in usual.items}
    moves = [item.value - before[item.id] for item in again.items]
    return TaskNoise(
        items=len(moves), changed=sum(move != 0 for move in moves), shift=sum(moves) / len(moves)
    )
