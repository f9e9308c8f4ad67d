"""An artifact's folder, run beside the lossless model on the same windows and in the same batches."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantflow.data.windows import Windows, scored_documents
from quantflow.errors import ArtifactError
from quantflow.formats.read import open_artifact
from quantflow.measure.batches import make_batches, scored_targets
from quantflow.measure.hidden import hidden_to_disk, rows_at, stored_hidden
from quantflow.measure.measurement import RuntimeInfo, Samples
from quantflow.measure.scoring import runtime_info, score_against
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter


@dataclass(frozen=True)
class Among:
    """Where some scored positions are among all that the baseline was scored at.

    Attributes:
        at: Place of each, [positions].
        positions: How many there are in all.
    """

    at: NDArray[np.int64]
    positions: int


@dataclass(frozen=True)
class Beside:
    """What every artifact of a model is held against.

    Attributes:
        source: The lossless model's folder.
        baseline: Output of the baseline stage on the same windows.
        windows: What is scored.
        device: `cpu` or `cuda`.
        batch_tokens: As the baseline's.
        among: Where the windows' positions are among the baseline's; None where they are all of them.
    """

    source: Path
    baseline: Path
    windows: Windows
    device: str
    batch_tokens: int
    among: Among | None = None


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
    positions = targets.size if beside.among is None else beside.among.positions
    stored = stored_hidden(beside.baseline, (positions, baseline.hidden_size))
    samples = score_against(
        baseline,
        stored if beside.among is None else rows_at(stored, beside.among.at),
        artifact,
        hidden_to_disk(artifact, batches, reporter.progress_folder, reporter, what),
        targets,
        scored_documents(beside.windows),
        ArtifactError,
        reporter,
    )
    return samples, runtime_info(artifact, beside.batch_tokens)
