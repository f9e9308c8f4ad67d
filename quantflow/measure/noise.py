"""The noise stage: the baseline against itself, each window alone instead of in batches with others.

Matrix products of another shape sum in another order, so that even the model itself does not give the same
figures twice. What is smaller than that is no effect of an artifact.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantflow.data.windows import Windows, scored_documents, some_windows
from quantflow.errors import SourceError
from quantflow.measure.batches import make_batches, scored_targets
from quantflow.measure.evaluation import load_evaluation
from quantflow.measure.hidden import hidden_to_disk, rows_at, stored_hidden
from quantflow.measure.measurement import Samples, load_samples
from quantflow.measure.noise_floor import noise_floor, save_noise
from quantflow.measure.params import NoiseParams
from quantflow.measure.scoring import score_against
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import load_checkpoint

_ALONE = 1  # token of a batch at most, so that every window is a batch of its own


def run(params: NoiseParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Measure some evaluation windows of the lossless model again, one by one.

    Args:
        params: Device, the baseline's size of batches, and how many windows.
        inputs: Finished outputs of `source`, `data` and `baseline`.
        output: Folder for noise.json.
        reporter: Receives progress.

    Raises:
        SourceError: The model's weights are damaged or its logits are not finite.
    """
    windows = load_evaluation(inputs["data"])
    chosen = spread_windows(windows, params.windows)
    some, at = some_windows(windows, chosen)
    folder = load_checkpoint(inputs["source"]).folder
    decoder = StreamedDecoder(folder, SafetensorsReader(folder), params.device)
    positions = int(windows.scored_counts.sum())
    before = rows_at(stored_hidden(inputs["baseline"], (positions, decoder.hidden_size)), at)
    again = hidden_to_disk(
        decoder, make_batches(some, _ALONE), reporter.progress_folder, reporter, "Running the baseline again"
    )
    samples = score_against(
        decoder, before, decoder, again, scored_targets(some), scored_documents(some), SourceError, reporter
    )
    baseline = load_samples(inputs["baseline"])
    same = Samples(baseline.document[at], baseline.nll[at])
    how = f"each window alone, not in batches of {params.batch_tokens} tokens"
    save_noise(output, noise_floor(how, same, samples))


def spread_windows(windows: Windows, most: int) -> NDArray[np.int64]:
    """Some windows that have a scored position, evenly spread over all of them."""
    scored = np.flatnonzero(windows.scored_counts > 0)
    places = np.linspace(0, scored.size - 1, min(most, scored.size))
    return scored[np.unique(places.round().astype(np.int64))].astype(np.int64)
