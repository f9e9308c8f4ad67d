"""The inspect stage: refuses a model that is broken before hours are spent on it."""

from collections.abc import Mapping
from pathlib import Path

from quantflow.inspection.params import InspectParams
from quantflow.inspection.record import Inspection, save_inspection
from quantflow.inspection.speech import try_model
from quantflow.inspection.streaming import check_streaming
from quantflow.inspection.suspicion import settle
from quantflow.inspection.tensors import check_tensors
from quantflow.inspection.tokenizer import check_tokenizer
from quantflow.inspection.values import check_values
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import load_checkpoint


def run(params: InspectParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Look at every weight, try the tokenizer, and let the model read and write a little.

    Costs one reading of the weights and a dozen short forwards, block by block.

    Args:
        params: Device, and whether to go on with what looks broken.
        inputs: Finished output of `source`.
        output: Folder for `inspect.json`.
        reporter: Receives progress and events.

    Raises:
        RecipeError: Its architecture is not listed, and does not work block by block.
        SourceError: The model is broken, or looks so and the recipe does not allow it.
    """
    folder = load_checkpoint(inputs["source"]).folder
    reader = SafetensorsReader(folder)
    decoder = StreamedDecoder(folder, reader, params.device)
    check_tensors(decoder, reader, reporter)
    check_values(reader, reporter)
    tokenizer = check_tokenizer(folder, decoder.vocab_size, reporter)
    if not decoder.family.listed:
        check_streaming(decoder)
    speech = try_model(decoder, tokenizer.tokenizer, reporter)
    settle([*tokenizer.suspicions, *speech.suspicions], params.allow_suspect, str(folder), reporter)
    save_inspection(
        output,
        Inspection(
            vocab_size=decoder.vocab_size,
            tensors=len(reader.names()),
            perplexities=speech.perplexities,
            characters_per_token=tokenizer.characters_per_token,
            chat_template=tokenizer.tokenizer.chat_template is not None,
            generations=speech.generations,
        ),
    )
