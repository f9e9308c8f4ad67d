"""The stages that let baseline and artifact go on with the same prompts, greedily and in the same batches."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quantflow.data.documents import load_documents
from quantflow.data.windows import Windows
from quantflow.errors import ArtifactError, DataError, QuantFlowError, SourceError
from quantflow.formats.assembly import artifact_folder
from quantflow.formats.read import open_artifact
from quantflow.measure.evaluation import load_evaluation
from quantflow.measure.generation_record import Generated, GenerationRecord, load_generation, save_generation
from quantflow.measure.params import GenerationParams
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.end_tokens import end_tokens
from quantflow.model.resident import resident, room_for_weights
from quantflow.model.tokenizer import load_tokenizer
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import load_checkpoint
from quantflow.tasks.draw import draw_items
from quantflow.tasks.scoring import Batches, generate_texts


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
    documents = load_documents(inputs["data"])
    prompts = choose_prompts(load_evaluation(inputs["data"]), params)
    if len(prompts) < params.prompts:
        reporter.event(
            "fewer-prompts",
            f"The evaluation documents give {len(prompts)} prompts of the {params.prompts} asked for.",
            prompts=len(prompts),
            asked=params.prompts,
        )
    room = getattr(decoder.config, "max_position_embeddings", None)
    longest = max(len(ids) for _, ids in prompts)
    if room is not None and longest + params.output_tokens > room:
        raise DataError(
            f"prompt and answer take up to {longest + params.output_tokens} tokens, the context has {room}",
            where="gate.generation",
            hint="Lower prompt_tokens or output_tokens.",
        )
    slices = [document.slice for document in documents]
    samples = _generated(decoder, prompts, slices, params, SourceError, reporter, params.batch_tokens)
    halved = max(1, params.batch_tokens // 2)
    again = _generated(decoder, prompts, slices, params, SourceError, reporter, halved)
    same = tuple(a.tokens == b.tokens for a, b in zip(samples, again, strict=True))
    save_generation(output, GenerationRecord(samples=samples, other_batches=same))


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
    asked = load_generation(inputs["generation"]).samples
    prompts = [(sample.document, sample.prompt) for sample in asked]
    slices = {sample.document: sample.slice for sample in asked}
    samples = _generated(decoder, prompts, slices, params, ArtifactError, reporter, params.batch_tokens)
    save_generation(output, GenerationRecord(samples=samples))


def choose_prompts(windows: Windows, params: GenerationParams) -> list[tuple[int, tuple[int, ...]]]:
    """Beginnings of evaluation windows, over as many documents as there can be: (document, token ids).

    Args:
        windows: Evaluation windows.
        params: How many and how long; a window that is shorter than twice that gives its first half.

    Raises:
        DataError: None is long enough.
    """
    usable = [(int(d), w.tolist()) for d, w in zip(windows.document, windows, strict=True) if len(w) > 1]
    chosen = draw_items([str(document) for document, _ in usable], params.prompts, params.seed, "generation")
    if not chosen:
        raise DataError("no evaluation document is long enough to make a prompt of", where="gate.generation")
    return [
        (usable[at][0], tuple(usable[at][1][: min(params.prompt_tokens, len(usable[at][1]) // 2)]))
        for at in chosen
    ]


def _generated(
    decoder: StreamedDecoder,
    prompts: Sequence[tuple[int, Sequence[int]]],
    slices: Sequence[str] | Mapping[int, str],
    params: GenerationParams,
    error: type[QuantFlowError],
    reporter: Reporter,
    batch_tokens: int,
) -> tuple[Generated, ...]:
    tokenizer: Any = load_tokenizer(decoder.folder, error)
    ends = end_tokens(decoder.folder, tokenizer)
    work = Batches(reporter, f"generation-{batch_tokens}", "Generating, batches")
    with resident(decoder, room_for_weights(decoder.device)):
        found = generate_texts(
            decoder,
            [ids for _, ids in prompts],
            batch_tokens,
            params.output_tokens,
            lambda tokens: tokens[-1] in ends,
            work,
            error,
        )
    return tuple(
        Generated(
            document=document,
            slice=slices[document],
            prompt=tuple(ids),
            prompt_text=tokenizer.decode(list(ids)),
            tokens=continuation.tokens,
            margins=continuation.margins,
            text=tokenizer.decode(list(continuation.tokens)),
        )
        for (document, ids), continuation in zip(prompts, found, strict=True)
    )
