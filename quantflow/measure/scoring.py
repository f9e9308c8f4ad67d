"""A model's hidden states at scored positions, and what its head makes of them, in bounded memory."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor

from quantflow.errors import QuantFlowError
from quantflow.measure.batches import LOGITS_BYTES, Batch
from quantflow.measure.divergence import kl_divergence, likeliest, token_nll
from quantflow.measure.measurement import RuntimeInfo, Samples
from quantflow.measure.pieces import Piece, score_in_pieces
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.forward import final_hidden
from quantflow.pipeline.events import Reporter

Rows = Callable[[int, int], Tensor]
"""Gives hidden states of the scored positions from … to, [to − from, d]."""


def scored_hidden(
    decoder: StreamedDecoder, batches: Sequence[Batch], reporter: Reporter, what: str
) -> Tensor:
    """Final hidden states, before the head, that predict every scored position.

    Args:
        decoder: The model.
        batches: All evaluation windows.
        reporter: Receives progress.
        what: What progress is shown as.

    Returns:
        float32 on the CPU, in the order of the windows, [positions, d].
    """
    positions = sum(batch.positions for batch in batches)
    ids = [torch.from_numpy(batch.ids) for batch in batches]
    result = torch.empty(positions, decoder.hidden_size, dtype=torch.float32)
    finals = final_hidden(decoder, ids, reporter, what)
    for batch in reversed(batches):
        final = finals.pop()  # freed when it has been copied out
        for row, start, at in batch.scored():
            result[start : start + at.stop - at.start] = final[row, at]
    return result


@torch.no_grad()
def score_alone(
    decoder: StreamedDecoder,
    hidden: Rows,
    targets: NDArray[np.int64],
    document: NDArray[np.int32],
    error: type[QuantFlowError],
    reporter: Reporter,
) -> Samples:
    """Negative log-likelihoods of a model by itself.

    Args:
        decoder: The model; only its head is used.
        hidden: Its hidden states at scored positions.
        targets: The tokens that came, [positions].
        document: Document of every position, [positions].
        error: Raised where a logit is not finite.
        reporter: Is told of progress, and keeps it.
    """

    def score(begin: int, end: int) -> Piece:
        log_p = _finite(decoder.logits(hidden(begin, end)), begin, error).log_softmax(-1)
        return {"nll": _float64(token_nll(log_p, _on(log_p, targets[begin:end])))}

    with decoder.loaded_head():
        found = score_in_pieces(targets.size, _step(decoder.vocab_size), score, reporter)
    return Samples(document, found["nll"], target=targets.astype(np.int32))


@torch.no_grad()
def score_against(
    baseline: StreamedDecoder,
    baseline_hidden: Rows,
    artifact: StreamedDecoder,
    artifact_hidden: Rows,
    targets: NDArray[np.int64],
    document: NDArray[np.int32],
    error: type[QuantFlowError],
    reporter: Reporter,
) -> Samples:
    """An artifact's negative log-likelihoods, and its next-token distributions beside the baseline's.

    Args:
        baseline: The lossless model; only its head is used.
        baseline_hidden: Its hidden states at scored positions.
        artifact: The artifact, of the same vocabulary; only its head is used.
        artifact_hidden: Its hidden states at the same positions.
        targets: The tokens that came, [positions].
        document: Document of every position, [positions].
        error: Raised where a logit of the artifact is not finite.
        reporter: Is told of progress, and keeps it.
    """

    def score(begin: int, end: int) -> Piece:
        log_p = baseline.logits(baseline_hidden(begin, end)).log_softmax(-1)
        log_q = _finite(artifact.logits(artifact_hidden(begin, end)), begin, error).log_softmax(-1)
        before, after = likeliest(log_p, log_q)
        return {
            "nll": _float64(token_nll(log_q, _on(log_q, targets[begin:end]))),
            "kl": _float64(kl_divergence(log_p, log_q)),
            "top1": (before == after).cpu().numpy(),
            "likeliest_before": before.cpu().numpy(),
            "likeliest": after.cpu().numpy(),
            "confidence": log_p.amax(-1).exp().cpu().numpy(),
        }

    with baseline.loaded_head(), artifact.loaded_head():
        found = score_in_pieces(targets.size, _step(baseline.vocab_size), score, reporter)
    return Samples(document=document, target=targets.astype(np.int32), **found)


def runtime_info(decoder: StreamedDecoder, batch_tokens: int) -> RuntimeInfo:
    """What a measurement says of how its model was run."""
    return RuntimeInfo(
        name="torch",
        version=torch.__version__,
        device=decoder.device.type,
        dtype=str(decoder.dtype).removeprefix("torch."),
        options={
            "attention": decoder.attention,
            "batch_tokens": str(batch_tokens),
            "threads": str(torch.get_num_threads()),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "transformers": transformers.__version__,
        },
    )


def _step(vocab_size: int) -> int:
    """Positions whose logits are held at once."""
    return max(1, LOGITS_BYTES // (vocab_size * torch.float32.itemsize))


def _float64(values: Tensor) -> NDArray[np.float64]:
    return values.cpu().numpy().astype(np.float64)


def _on(like: Tensor, values: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(values).to(like.device)


def _finite(logits: Tensor, begin: int, error: type[QuantFlowError]) -> Tensor:
    # A NaN passes through both; several times cheaper than a look at every logit by itself.
    sound = torch.isfinite(logits.amax(-1)) & torch.isfinite(logits.amin(-1))
    if not sound.all():
        position = begin + int((~sound).nonzero()[0])
        raise error(
            "the model's logits are not finite numbers",
            where=f"scored position {position} of the evaluation data",
            hint="Its weights are damaged, or values overflow: nothing can be measured of it.",
        )
    return logits
