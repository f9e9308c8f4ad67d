"""Measuring in vLLM: what the serving runtime itself makes of the evaluation windows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from quantflow.data.documents import load_documents
from quantflow.data.windows import Windows, scored_documents
from quantflow.errors import ArtifactError, QuantFlowError, SourceError
from quantflow.formats.assembly import artifact_folder
from quantflow.measure.batches import scored_targets
from quantflow.measure.evaluation import load_evaluation
from quantflow.measure.measurement import Samples, load_measurement, save_measurement
from quantflow.measure.params import ServedParams
from quantflow.measure.runtime_info import served_info
from quantflow.measure.summary import summarize
from quantflow.measure.topk import TopK, kl_lower_bound, load_topk, save_topk
from quantflow.pipeline.events import Reporter
from quantflow.runtime.engine import TOP, Workload
from quantflow.runtime.environment import find_environment
from quantflow.runtime.params import resolved_dtype
from quantflow.runtime.vllm import Scores, Session, vllm_session
from quantflow.source.checkpoint import load_checkpoint

# Batches that one question to vLLM holds: it keeps its own batches full, and progress still shows.
BATCHES_ASKED = 4


def baseline(params: ServedParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Measure the lossless model in vLLM.

    Args:
        params: vLLM's options.
        inputs: Finished outputs of `source` and `data`.
        output: Folder for measurement.json, samples.safetensors and topk.safetensors.
        reporter: Receives progress.

    Raises:
        SourceError: A log-probability is not finite.
        ArtifactError: vLLM cannot load it, dies or does not answer.
        DataError: There is nothing to score.
        RuntimeUnavailableError: vLLM is not installed.
    """
    folder = load_checkpoint(inputs["source"]).folder
    samples, topk, session = _measured(params, inputs, folder, SourceError, reporter)
    slices = [document.slice for document in load_documents(inputs["data"])]
    save_topk(output, topk)
    save_measurement(output, summarize(samples, slices, served_info(session, params.serving)), samples)


def artifact(params: ServedParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Measure an artifact in vLLM, on the windows, in the type and in the batches that the baseline had.

    Of KL the likeliest tokens give a lower bound.

    Args:
        params: vLLM's options; the baseline's.
        inputs: Finished outputs of `source`, `data`, `baseline` and `assemble`.
        output: Folder for measurement.json and samples.safetensors.
        reporter: Receives progress.

    Raises:
        ArtifactError: vLLM cannot load it, dies or does not answer, computes in another type than it did for
            the baseline, or a log-probability is not finite.
        RuntimeUnavailableError: vLLM is not installed.
    """
    folder = artifact_folder(inputs["assemble"])
    alone, topk, session = _measured(params, inputs, folder, ArtifactError, reporter)
    before = load_measurement(inputs["baseline"]).runtime.dtype
    if session.loaded.dtype != before:
        raise ArtifactError(
            f"vLLM computes it in {session.loaded.dtype}, the baseline in {before}", where=str(folder)
        )
    reference = load_topk(inputs["baseline"])
    samples = Samples(
        alone.document,
        alone.nll,
        top1=topk.top1 == reference.top1,
        kl_at_least=kl_lower_bound(reference, topk),
        target=alone.target,
    )
    slices = [document.slice for document in load_documents(inputs["data"])]
    save_measurement(output, summarize(samples, slices, served_info(session, params.serving)), samples)


def _measured(
    params: ServedParams,
    inputs: Mapping[str, Path],
    folder: Path,
    error: type[QuantFlowError],
    reporter: Reporter,
) -> tuple[Samples, TopK, Session]:
    windows = load_evaluation(inputs["data"])
    environment = find_environment("vllm", params.serving.device)
    dtype = resolved_dtype(params.serving, load_checkpoint(inputs["source"]).dtype)
    longest = int(np.diff(windows.offsets).max())
    requests = max(1, params.batch_tokens // longest)
    workload = Workload(longest + 1, requests, params.batch_tokens)
    log = reporter.progress_folder / "vllm.log"
    with vllm_session(environment, folder, params.serving, dtype, workload, log) as session:
        scores = _scores(session, windows, params.batch_tokens, reporter)
    nll = -np.array([value for score in scores for value in score.target], dtype=np.float64)
    if not np.isfinite(nll).all():
        position = int(np.flatnonzero(~np.isfinite(nll))[0])
        raise error(
            "a log-probability is not a finite number",
            where=f"scored position {position} of the evaluation data",
            hint="The model's weights are damaged, or values overflow in this type.",
        )
    topk = TopK.of(
        [row for score in scores for row in score.ids], [row for score in scores for row in score.logprobs]
    )
    targets = scored_targets(windows).astype(np.int32)
    return Samples(scored_documents(windows), nll, target=targets), topk, session


def _scores(session: Session, windows: Windows, batch_tokens: int, reporter: Reporter) -> Sequence[Scores]:
    """Scores of all windows that have any, in their order."""
    asked = [
        (window.tolist(), int(first))
        for window, first in zip(windows, windows.scored_from, strict=True)
        if first < len(window)
    ]
    scores: list[Scores] = []
    with reporter.track("Scoring in vLLM", len(asked)) as advance:
        while len(scores) < len(asked):
            piece = _next_piece(asked[len(scores) :], BATCHES_ASKED * batch_tokens)
            scores.extend(session.score([ids for ids, _ in piece], [first for _, first in piece], TOP))
            advance(len(piece))
    return scores


def _next_piece(asked: Sequence[tuple[list[int], int]], tokens: int) -> Sequence[tuple[list[int], int]]:
    """As many windows as hold that many tokens together, one at least."""
    ends = np.cumsum([len(ids) for ids, _ in asked])
    return asked[: max(1, int(np.searchsorted(ends, tokens, side="right")))]
