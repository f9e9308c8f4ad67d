"""The measure stage: an artifact, read back from disk, beside the baseline at the same positions."""

from collections.abc import Mapping
from pathlib import Path

from quantflow.data.documents import load_documents
from quantflow.data.windows import scored_documents
from quantflow.errors import ArtifactError
from quantflow.formats.assembly import artifact_folder
from quantflow.formats.read import open_artifact
from quantflow.measure.batches import make_batches, scored_targets
from quantflow.measure.evaluation import load_evaluation
from quantflow.measure.hidden import hidden_to_disk, stored_hidden
from quantflow.measure.measurement import save_measurement
from quantflow.measure.params import MeasureParams
from quantflow.measure.scoring import runtime_info, score_against
from quantflow.measure.summary import summarize
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import load_checkpoint


def run(params: MeasureParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Measure an artifact on the evaluation windows, in float32 and in the baseline's batches.

    Args:
        params: Device and size of batches; the baseline's.
        inputs: Finished outputs of `source`, `data`, `baseline` and `assemble`.
        output: Folder for measurement.json and samples.safetensors.
        reporter: Receives progress.

    Raises:
        ArtifactError: The artifact is damaged or its logits are not finite.
        DataError: There is nothing to score.
    """
    windows = load_evaluation(inputs["data"])
    targets = scored_targets(windows)
    source, folder = load_checkpoint(inputs["source"]).folder, artifact_folder(inputs["assemble"])
    baseline = StreamedDecoder(source, SafetensorsReader(source), params.device)
    artifact = StreamedDecoder(folder, open_artifact(folder), params.device)
    if artifact.vocab_size != baseline.vocab_size:
        raise ArtifactError(
            f"it has a vocabulary of {artifact.vocab_size}, the baseline of {baseline.vocab_size}",
            where=str(folder),
        )
    batches = make_batches(windows, params.batch_tokens)
    baseline_hidden = stored_hidden(inputs["baseline"], (targets.size, baseline.hidden_size))
    hidden = hidden_to_disk(artifact, batches, reporter.progress_folder, reporter, "Running the artifact")
    samples = score_against(
        baseline,
        baseline_hidden,
        artifact,
        hidden,
        targets,
        scored_documents(windows),
        ArtifactError,
        reporter,
    )
    slices = [document.slice for document in load_documents(inputs["data"])]
    measurement = summarize(samples, slices, runtime_info(artifact, params.batch_tokens))
    save_measurement(output, measurement, samples)
