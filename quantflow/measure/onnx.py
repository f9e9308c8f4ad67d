"""Measuring in ONNX Runtime: an ONNX artifact beside the lossless graph, with the logits of both."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantflow.data.documents import load_documents
from quantflow.data.windows import Windows, scored_documents
from quantflow.errors import ArtifactError, QuantFlowError, SourceError
from quantflow.formats.assembly import artifact_folder
from quantflow.formats.onnx.base import load_base
from quantflow.formats.onnx.census import take_census
from quantflow.formats.onnx.census_record import load_expectation, save_census
from quantflow.measure.batches import scored_targets
from quantflow.measure.divergence import kl_divergence, likeliest, token_nll
from quantflow.measure.evaluation import load_evaluation, load_scored
from quantflow.measure.measurement import RuntimeInfo, Samples, save_measurement
from quantflow.measure.onnx_info import session_info
from quantflow.measure.onnx_params import OnnxMeasureParams
from quantflow.measure.pieces import Piece, score_in_pieces
from quantflow.measure.summary import summarize
from quantflow.pipeline.events import Reporter
from quantflow.runtime.ort import OnnxModel, Sequel

OPTIMISED = "optimised.onnx"
# Scored positions of a piece that is kept when the run is interrupted.
PIECE = 256
MOST_NAMED = 20  # units that an event names; census.json has them all


def baseline(params: OnnxMeasureParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Measure the lossless graph.

    Args:
        params: Session options.
        inputs: Finished outputs of `base` and `data`.
        output: Folder for measurement.json and samples.safetensors.
        reporter: Receives progress.

    Raises:
        SourceError: A logit is not finite.
        ArtifactError: ONNX Runtime cannot load or run it.
        RuntimeUnavailableError: The provider does not run it.
        DataError: There is nothing to score, or too few documents.
    """
    windows = load_scored(inputs["data"], params.split, params.min_documents)
    model = OnnxModel(load_base(inputs["base"]).folder, params.session)
    stream = ScoredGraph(windows, model, None, SourceError)
    found = score_in_pieces(scored_documents(windows).size, PIECE, stream.take, reporter)
    samples = Samples(scored_documents(windows), target=_targets(windows), **found)
    slices = [document.slice for document in load_documents(inputs["data"])]
    save_measurement(output, summarize(samples, slices, _info(model, params)), samples)


def artifact(params: OnnxMeasureParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Measure an artifact beside the lossless graph, which runs along; and see what really runs as INT8.

    Args:
        params: Session options; the baseline's.
        inputs: Finished outputs of `base`, `data` and `assemble`; of `baseline`, so that what it refuses is
            not measured against.
        output: Folder for measurement.json, samples.safetensors and census.json.
        reporter: Receives progress and events.

    Raises:
        ArtifactError: ONNX Runtime cannot load or run the artifact, or a logit is not finite.
        RuntimeUnavailableError: The provider does not run it.
    """
    windows = load_evaluation(inputs["data"])
    folder = artifact_folder(inputs["assemble"])
    expectation = load_expectation(inputs["assemble"])
    looked = reporter.progress_folder / "census"
    shutil.rmtree(looked, ignore_errors=True)
    looked.mkdir(parents=True)
    try:
        model = OnnxModel(folder, params.session, looked / OPTIMISED)
        census = take_census(looked / OPTIMISED, expectation, model.provider)
    finally:
        shutil.rmtree(looked)  # as large as the model: not to lie there when the disk was too small for it
    if census.fallen_back:
        units = census.fallen_back
        reporter.event(
            "unit-fell-back",
            f"{len(units)} units do not run as they are stored ({expectation.computes}) in ONNX Runtime.",
            units={u: dict(census.units[u].operators) for u in units[:MOST_NAMED]},
            total=len(units),
        )
    samples = _samples(model, folder, params, windows, inputs["base"], reporter)
    slices = [document.slice for document in load_documents(inputs["data"])]
    save_measurement(output, summarize(samples, slices, _info(model, params)), samples)
    save_census(output, census)


def graph_samples(
    params: OnnxMeasureParams, windows: Windows, folder: Path, base: Path, reporter: Reporter
) -> tuple[Samples, RuntimeInfo]:
    """Measure a graph beside the lossless one, for a choice: without a census.

    Args:
        params: Session options.
        windows: What is scored.
        folder: The graph's.
        base: Finished output of the stage that made the lossless graph.
        reporter: Receives progress, and keeps it.

    Raises:
        ArtifactError: ONNX Runtime cannot load or run it, or a logit is not finite.
    """
    model = OnnxModel(folder, params.session)
    return _samples(model, folder, params, windows, base, reporter), _info(model, params)


def _samples(
    model: OnnxModel,
    folder: Path,
    params: OnnxMeasureParams,
    windows: Windows,
    base: Path,
    reporter: Reporter,
) -> Samples:
    reference = OnnxModel(load_base(base).folder, params.session)
    if model.vocab_size != reference.vocab_size:
        raise ArtifactError(
            f"it has a vocabulary of {model.vocab_size}, the lossless graph of {reference.vocab_size}",
            where=str(folder),
        )
    stream = ScoredGraph(windows, model, reference, ArtifactError)
    found = score_in_pieces(scored_documents(windows).size, PIECE, stream.take, reporter)
    return Samples(scored_documents(windows), target=_targets(windows), **found)


def _targets(windows: Windows) -> NDArray[np.int32]:
    return scored_targets(windows).astype(np.int32)


def _info(model: OnnxModel, params: OnnxMeasureParams) -> RuntimeInfo:
    return session_info(params.session, params.instruction_set, model.provider, model.dtype, model.chunk)


@dataclass(frozen=True)
class _Positions:
    """Values of scored positions that come one after the other."""

    begin: int
    values: Piece

    @property
    def end(self) -> int:
        return self.begin + next(iter(self.values.values())).size


class ScoredGraph:
    """Scores positions in order, window by window; what is left of a window waits for the next piece.

    One window at a time: on a CPU GroupQueryAttention takes a chunk with a past for a batch of one only.

    Args:
        windows: What is scored.
        model: The graph.
        reference: The lossless graph, which runs along for KL; None for none.
        error: Raised where a logit is not finite.
        at_once: Tokens that go through `model` at once, at most; None for as many as do through the other.
    """

    def __init__(
        self,
        windows: Windows,
        model: OnnxModel,
        reference: OnnxModel | None,
        error: type[QuantFlowError],
        at_once: int | None = None,
    ) -> None:
        """Nothing is run here."""
        self._windows = list(windows)
        self._first = [int(first) for first in windows.scored_from]
        self._starts = np.concatenate([[0], np.cumsum(windows.scored_counts)]).astype(np.int64)
        self._model = model
        self._reference = reference
        self._error = error
        self._at_once = at_once
        self._stream: Iterator[_Positions] | None = None
        self._held: list[_Positions] = []

    def take(self, begin: int, end: int) -> Piece:
        """Values of the positions from … to; pieces are asked for in order, the first one may be any."""
        if self._stream is None:
            self._stream = self._from(begin)
        while not self._held or self._held[-1].end < end:
            self._held.append(next(self._stream))
        first = self._held[0].begin
        joined = {
            name: np.concatenate([held.values[name] for held in self._held]) for name in self._held[0].values
        }
        rest = {name: values[end - first :] for name, values in joined.items()}
        self._held = [_Positions(end, rest)] if self._held[-1].end > end else []
        return {name: values[begin - first : end - first] for name, values in joined.items()}

    @torch.no_grad()
    def _from(self, begin: int) -> Iterator[_Positions]:
        """Scores from the window on in which a position is."""
        at = int(np.searchsorted(self._starts, begin, side="right")) - 1
        for index in range(at, len(self._windows)):
            yield from self._window(index)

    def _window(self, index: int) -> Iterator[_Positions]:
        """Scores of a window, a chunk at a time; tokens s … n − 1 are predicted at s − 1 … n − 2."""
        ids, first = self._windows[index].astype(np.int64), self._first[index]
        if first >= ids.size:
            return
        artifact = self._model.start(ids.size)
        reference = self._reference.start(ids.size) if self._reference is not None else None
        position = int(self._starts[index])
        for chunk_begin in range(0, ids.size - 1, self._model.chunk):
            chunk = ids[chunk_begin : min(chunk_begin + self._model.chunk, ids.size - 1)]
            log_q = self._finite(artifact, chunk, position)
            log_p = None if reference is None else torch.from_numpy(reference.logits(chunk)).log_softmax(-1)
            skipped = max(0, first - 1 - chunk_begin)
            if skipped >= chunk.size:
                continue
            targets = torch.from_numpy(ids[chunk_begin + skipped + 1 : chunk_begin + chunk.size + 1])
            values = _values(log_q[skipped:], None if log_p is None else log_p[skipped:], targets)
            yield _Positions(position, values)
            position += chunk.size - skipped

    def _finite(self, sequel: Sequel, ids: NDArray[np.int64], position: int) -> Tensor:
        pieces = [torch.from_numpy(logits) for _, logits in sequel.pieces(ids, self._at_once)]
        logits = torch.cat(pieces) if len(pieces) > 1 else pieces[0]
        if not bool(torch.isfinite(logits.amax(-1)).all() and torch.isfinite(logits.amin(-1)).all()):
            raise self._error(
                "the graph's logits are not finite numbers",
                where=f"scored position {position} of the evaluation data or shortly after",
                hint="Its weights are damaged, or values overflow: nothing can be measured of it.",
            )
        return logits.log_softmax(-1)


def _values(log_q: Tensor, log_p: Tensor | None, targets: Tensor) -> Piece:
    values: dict[str, NDArray[Any]] = {"nll": token_nll(log_q, targets).numpy().astype(np.float64)}
    if log_p is not None:
        values["kl"] = kl_divergence(log_p, log_q).numpy().astype(np.float64)
        before, after = likeliest(log_p, log_q)
        values["top1"] = (before == after).numpy()
        values["likeliest_before"], values["likeliest"] = before.numpy(), after.numpy()
        values["confidence"] = log_p.amax(-1).exp().numpy()
    return values
