"""The baseline stage: the lossless model's perplexity, and its hidden states for every later comparison."""

from collections.abc import Mapping
from pathlib import Path

from quantflow.data.documents import load_documents
from quantflow.data.windows import scored_documents
from quantflow.errors import SourceError
from quantflow.measure.batches import make_batches, scored_targets
from quantflow.measure.evaluation import load_scored
from quantflow.measure.hidden import hidden_to_disk
from quantflow.measure.looks import batches_in_looks, planned_looks
from quantflow.measure.measurement import save_measurement
from quantflow.measure.params import BaselineParams
from quantflow.measure.scoring import runtime_info, score_alone
from quantflow.measure.summary import summarize
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import load_checkpoint


def run(params: BaselineParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Measure the lossless model on the evaluation or the selection windows, in float32.

    Args:
        params: Device, size of batches and documents.
        inputs: Finished outputs of `source` and `data`.
        output: Folder for measurement.json, samples.safetensors and hidden.safetensors.
        reporter: Receives progress.

    Raises:
        SourceError: The model's weights are damaged or its logits are not finite.
        DataError: There is nothing to score, or too few documents.
    """
    windows = load_scored(inputs["data"], params.split, params.min_documents)
    folder = load_checkpoint(inputs["source"]).folder
    decoder = StreamedDecoder(folder, SafetensorsReader(folder), params.device)
    documents = load_documents(inputs["data"])
    if params.look_seed is None:
        batches = make_batches(windows, params.batch_tokens)
    else:
        looks = planned_looks(windows, documents, params.look_seed)
        batches = batches_in_looks(windows, looks, params.batch_tokens)
    hidden = hidden_to_disk(decoder, batches, output, reporter, "Running the baseline")
    samples = score_alone(
        decoder,
        hidden,
        scored_targets(windows),
        scored_documents(windows),
        SourceError,
        reporter,
    )
    slices = [document.slice for document in documents]
    measurement = summarize(samples, slices, runtime_info(decoder, params.batch_tokens))
    save_measurement(output, measurement, samples)
