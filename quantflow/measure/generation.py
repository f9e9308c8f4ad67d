"""The stages that let baseline and artifact go on with the same prompts in torch, greedily."""

from collections.abc import Mapping
from pathlib import Path

from quantflow.errors import ArtifactError, SourceError
from quantflow.formats.assembly import artifact_folder
from quantflow.formats.read import open_artifact
from quantflow.measure.generation_record import load_generation, save_generation
from quantflow.measure.params import GenerationParams
from quantflow.measure.prompted import answered_alike, answered_twice
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.resident import resident, room_for_weights
from quantflow.model.tokenizer import load_tokenizer
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import load_checkpoint
from quantflow.tasks.scoring import TorchText


def baseline(params: GenerationParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Let the lossless model go on with the prompts, and once more in batches of half the size.

    Args:
        params: How many prompts, how long, and the size of batches.
        inputs: Finished outputs of `source` and `data`.
        output: Folder for generation.json.
        reporter: Receives progress and events, and keeps what interruptions would cost.

    Raises:
        DataError: No evaluation document is long enough to make a prompt of.
        SourceError: The model is damaged.
    """
    folder = load_checkpoint(inputs["source"]).folder
    decoder = StreamedDecoder(folder, SafetensorsReader(folder), params.device)
    tokenizer = load_tokenizer(folder, SourceError)
    with resident(decoder, room_for_weights(decoder.device)) as stays:
        usual, again = (
            TorchText(decoder, batch_tokens, SourceError, stays=stays)
            for batch_tokens in (params.batch_tokens, max(1, params.batch_tokens // 2))
        )
        record = answered_twice(usual, again, folder, tokenizer, inputs["data"], params, reporter)
    save_generation(output, record)


def artifact(params: GenerationParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Let an artifact go on with the baseline's prompts; it stops where its own files say a text ends.

    Args:
        params: The baseline's.
        inputs: Finished outputs of `generation` and `assemble`.
        output: Folder for generation.json.
        reporter: Receives progress, and keeps what interruptions would cost.

    Raises:
        ArtifactError: The artifact is damaged.
    """
    folder = artifact_folder(inputs["assemble"])
    decoder = StreamedDecoder(folder, open_artifact(folder), params.device)
    tokenizer = load_tokenizer(folder, ArtifactError)
    with resident(decoder, room_for_weights(decoder.device)) as stays:
        model = TorchText(decoder, params.batch_tokens, ArtifactError, stays=stays)
        asked = load_generation(inputs["generation"])
        record = answered_alike(model, folder, tokenizer, asked, params, reporter)
    save_generation(output, record)
