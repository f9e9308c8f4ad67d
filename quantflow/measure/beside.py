"""An artifact's folder, run beside the lossless model on the same windows and in the same batches."""

from dataclasses import dataclass
from pathlib import Path

from quantflow.data.windows import Windows, scored_documents
from quantflow.errors import ArtifactError
from quantflow.formats.read import open_artifact
from quantflow.measure.batches import make_batches, scored_targets
from quantflow.measure.hidden import hidden_to_disk, stored_hidden
from quantflow.measure.measurement import RuntimeInfo, Samples
from quantflow.measure.scoring import runtime_info, score_against
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter


@dataclass(frozen=True)
class Beside:
    """What every artifact of a model is held against.

    Attributes:
        source: The lossless model's folder.
        baseline: Output of the baseline stage on the same windows.
        windows: What is scored.
        device: `cpu` or `cuda`.
        batch_tokens: As the baseline's.
    """

    source: Path
    baseline: Path
    windows: Windows
    device: str
    batch_tokens: int


def samples_beside(
    beside: Beside, folder: Path, reporter: Reporter, what: str = "Running the artifact"
) -> tuple[Samples, RuntimeInfo]:
    """Measure what is read back from an artifact's folder, in float32.

    Args:
        beside: The lossless model and the windows.
        folder: The artifact.
        reporter: Receives progress, and keeps it.
        what: What progress is shown as.

    Raises:
        ArtifactError: The artifact is damaged or its logits are not finite.
    """
    targets = scored_targets(beside.windows)
    baseline = StreamedDecoder(beside.source, SafetensorsReader(beside.source), beside.device)
    artifact = StreamedDecoder(folder, open_artifact(folder), beside.device)
    if artifact.vocab_size != baseline.vocab_size:
        raise ArtifactError(
            f"it has a vocabulary of {artifact.vocab_size}, the baseline of {baseline.vocab_size}",
            where=str(folder),
        )
    batches = make_batches(beside.windows, beside.batch_tokens)
    samples = score_against(
        baseline,
        stored_hidden(beside.baseline, (targets.size, baseline.hidden_size)),
        artifact,
        hidden_to_disk(artifact, batches, reporter.progress_folder, reporter, what),
        targets,
        scored_documents(beside.windows),
        ArtifactError,
        reporter,
    )
    return samples, runtime_info(artifact, beside.batch_tokens)
