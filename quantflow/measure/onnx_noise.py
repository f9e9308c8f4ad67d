"""The noise stage of the lossless graph: each window in small pieces, attending over what is in the cache.

Products of other shapes sum in another order, so that even the graph itself does not give the same figures
twice. What is smaller than that is no effect of an artifact.
"""

from collections.abc import Mapping
from pathlib import Path

from quantflow.data.windows import scored_documents, some_windows
from quantflow.errors import SourceError
from quantflow.formats.onnx.base import load_base
from quantflow.measure.evaluation import load_evaluation
from quantflow.measure.measurement import Samples, load_samples
from quantflow.measure.noise import spread_windows
from quantflow.measure.noise_floor import noise_floor, save_noise
from quantflow.measure.onnx import PIECE, ScoredGraph
from quantflow.measure.onnx_params import OnnxNoiseParams
from quantflow.measure.pieces import score_in_pieces
from quantflow.pipeline.events import Reporter
from quantflow.runtime.ort import OnnxModel
from quantflow.tasks.graph_text import NOISE_PIECE


def run(params: OnnxNoiseParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Measure some evaluation windows on the lossless graph again, in small pieces.

    Args:
        params: Session options, and how many windows.
        inputs: Finished outputs of `base`, `data` and `baseline`.
        output: Folder for noise.json.
        reporter: Receives progress.

    Raises:
        SourceError: A logit is not finite.
        ArtifactError: ONNX Runtime cannot load or run the graph.
    """
    windows = load_evaluation(inputs["data"])
    some, at = some_windows(windows, spread_windows(windows, params.windows))
    model = OnnxModel(load_base(inputs["base"]).folder, params.session)
    stream = ScoredGraph(some, model, model, SourceError, at_once=NOISE_PIECE)
    found = score_in_pieces(scored_documents(some).size, PIECE, stream.take, reporter)
    before = load_samples(inputs["baseline"])
    again = Samples(scored_documents(some), **found)
    how = f"each window in pieces of {NOISE_PIECE} tokens over the cache, not at once"
    save_noise(output, noise_floor(how, Samples(before.document[at], before.nll[at]), again))
