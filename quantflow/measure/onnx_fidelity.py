"""The stage that holds the lossless graph against the model itself: ONNX artifacts are judged beside it."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantflow.data.windows import EVALUATION_FILE, SELECTION_FILE, load_windows
from quantflow.errors import DataError, SourceError
from quantflow.formats.onnx.base import load_base
from quantflow.measure.divergence import kl_divergence
from quantflow.measure.fidelity import Fidelity, save_fidelity
from quantflow.measure.onnx_params import OnnxFidelityParams
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.runtime.ort import OnnxModel
from quantflow.source.checkpoint import load_checkpoint

LEAST_TOKENS = 2  # one to attend to another


def run(params: OnnxFidelityParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Compare logits of the lossless graph with those of torch on a few windows.

    Args:
        params: Session options, and how much is compared.
        inputs: Finished outputs of `source`, `base` and `data`.
        output: Folder for fidelity.json.
        reporter: Shows progress.

    Raises:
        DataError: No window has two tokens.
        SourceError: The model is damaged, its vocabulary is not the graph's, or a logit is not finite.
        ArtifactError: ONNX Runtime cannot load or run the graph.
    """
    split, windows = _windows(inputs["data"], params)
    folder = load_checkpoint(inputs["source"]).folder
    decoder = StreamedDecoder(folder, SafetensorsReader(folder), params.device)
    base = load_base(inputs["base"])
    model = OnnxModel(base.folder, params.session)
    if model.vocab_size != decoder.vocab_size:
        raise SourceError(
            f"the lossless graph has a vocabulary of {model.vocab_size}, the model of {decoder.vocab_size}",
            where=str(folder),
            hint="Nothing can be judged beside a graph of another model: look at the model's config.json.",
        )
    steps = decoder.num_blocks + len(windows)
    with reporter.track("Comparing the lossless graph with torch", steps) as advance:
        finals = _finals(decoder, windows, advance)
        largest, divergences = 0.0, []
        with torch.no_grad(), decoder.loaded_head():
            for ids, final in zip(windows, finals, strict=True):
                for begin, logits in model.start(ids.size).pieces(ids):
                    graph = torch.from_numpy(logits)
                    own = decoder.logits(final[begin : begin + len(logits)]).float().cpu()
                    largest = max(largest, float((graph - own).abs().max()))
                    divergences.append(kl_divergence(own.log_softmax(-1), graph.log_softmax(-1)))
                advance(1)
    kl = torch.cat(divergences).double()
    if not (math.isfinite(largest) and bool(torch.isfinite(kl).all())):
        raise SourceError(
            "logits of the model or of its lossless graph are not finite numbers",
            where=str(folder),
            hint="Its weights are damaged, or values overflow: nothing can be judged beside it.",
        )
    save_fidelity(
        output,
        Fidelity(
            precision="fp16" if base.precision == "fp16" else "fp32",
            split=split,
            windows=len(windows),
            tokens=kl.numel(),
            max_logit_difference=largest,
            kl_mean=max(0.0, float(kl.mean())),
            kl_max=max(0.0, float(kl.max())),
        ),
    )


def _windows(
    data_output: Path, params: OnnxFidelityParams
) -> tuple[Literal["selection", "evaluation"], list[NDArray[np.int64]]]:
    """The longest selection windows; evaluation windows where there are none.

    Nothing is chosen by them, so that the evaluation documents are not used up.
    """
    splits: Mapping[Literal["selection", "evaluation"], str] = {
        "selection": SELECTION_FILE,
        "evaluation": EVALUATION_FILE,
    }
    for split, name in splits.items():
        if not (data_output / name).is_file():
            continue
        long = [window for window in load_windows(data_output / name) if len(window) >= LEAST_TOKENS]
        if long:
            longest = sorted(long, key=len, reverse=True)[: params.windows]
            return split, [window[: params.tokens].astype(np.int64) for window in longest]
    raise DataError("no window has two tokens to compare models on", where="data.split.selection")


@torch.no_grad()
def _finals(
    decoder: StreamedDecoder, windows: Sequence[NDArray[np.int64]], advance: Callable[[int], None]
) -> list[Tensor]:
    """Final hidden states of each window, [tokens, d]; all of them go through a block while it is loaded."""
    begun = [decoder.embed(torch.from_numpy(ids).unsqueeze(0)) for ids in windows]
    states = [hidden for hidden, _ in begun]
    for index in range(decoder.num_blocks):
        with decoder.loaded_block(index) as block:
            states = [
                calls[index].run(block, hidden) for hidden, (_, calls) in zip(states, begun, strict=True)
            ]
        advance(1)
    return [decoder.final(hidden)[0] for hidden in states]
