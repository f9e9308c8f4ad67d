"""The measure stage: an artifact, read back from disk, beside the baseline at the same positions."""

from collections.abc import Mapping
from pathlib import Path

from quantflow.data.documents import load_documents
from quantflow.formats.assembly import artifact_folder
from quantflow.measure.beside import Beside, samples_beside
from quantflow.measure.evaluation import load_evaluation
from quantflow.measure.measurement import save_measurement
from quantflow.measure.params import MeasureParams
from quantflow.measure.summary import summarize
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
    beside = Beside(
        source=load_checkpoint(inputs["source"]).folder,
        baseline=inputs["baseline"],
        windows=load_evaluation(inputs["data"]),
        device=params.device,
        batch_tokens=params.batch_tokens,
    )
    samples, runtime = samples_beside(beside, artifact_folder(inputs["assemble"]), reporter)
    slices = [document.slice for document in load_documents(inputs["data"])]
    save_measurement(output, summarize(samples, slices, runtime), samples)
