"""What comes after the last block: logits, their KL beside the baseline's, and the loss's gradient there."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantflow.errors import QuantizationError
from quantflow.measure.batches import LOGITS_BYTES, Batch
from quantflow.measure.divergence import kl_divergence
from quantflow.model.decoder import StreamedDecoder
from quantflow.sensitivity.text import ScanText

SEED = 0
"""Of the labels that are drawn from the model's own distribution: the same text, the same labels."""

States = Callable[[int], Tensor]
"""Gives what leaves the last block, of the batch of a number, `[B, T, d]`."""


@torch.no_grad()
def streams_kl(
    decoder: StreamedDecoder, text: ScanText, baseline: States, streams: Sequence[States]
) -> NDArray[np.float64]:
    """KL of streams' next-token distributions from the baseline's, summed up by window.

    The baseline's logits are made once for all streams.

    Args:
        decoder: The model; only its norm and head are used.
        text: The text.
        baseline: What leaves the lossless last block.
        streams: What leaves it where something before it was swapped.

    Returns:
        Nats, [streams, windows].

    Raises:
        QuantizationError: A stream's logits are not finite.
    """
    sums = np.zeros((len(streams), len(text.windows)))
    with decoder.loaded_around(), decoder.loaded_head():
        for number, batch in enumerate(text.batches):
            reference, *others = (
                _scored(decoder.final(states(number)), batch) for states in (baseline, *streams)
            )
            kl = torch.empty(len(others), len(reference), dtype=torch.float64)
            for part in _pieces(len(reference), decoder.vocab_size):
                log_p = decoder.logits(reference[part]).log_softmax(-1)
                for own, other in zip(kl, others, strict=True):
                    log_q = decoder.logits(other[part]).log_softmax(-1)
                    own[part] = kl_divergence(log_p, log_q).cpu()
            if not bool(torch.isfinite(kl).all()):
                raise QuantizationError(
                    "with a unit swapped the model's logits are not finite numbers",
                    where="the scan",
                    hint="Its codes overflow; quantize to another scheme.",
                )
            sums += text.by_window(batch, kl.numpy())
    return sums


def loss_gradients(
    decoder: StreamedDecoder, text: ScanText, baseline: States, seed: int = SEED
) -> Iterator[Tensor]:
    """Gradients of the summed loss at what leaves the last block, one batch after the other, `[B, T, d]`.

    The loss is the negative log-likelihood, summed over scored positions, of labels that are drawn from the
    model's own distributions: the square of its gradient then has Fisher's information as its mean (Martens,
    New Insights and Perspectives on the Natural Gradient Method, 2020, section 5).

    Args:
        decoder: The model; only its norm and head are used.
        text: The text.
        baseline: What leaves the lossless last block.
        seed: Of the labels.
    """
    with decoder.loaded_around(), decoder.loaded_head():
        for number, batch in enumerate(text.batches):
            hidden = baseline(number).requires_grad_()
            with torch.enable_grad():
                final = decoder.final(hidden)
            rows = _scored(final.detach(), batch)
            gradient = torch.empty_like(rows)
            generator = torch.Generator(rows.device).manual_seed(seed + number)
            for part in _pieces(len(rows), decoder.vocab_size):
                gradient[part] = _row_gradients(decoder, rows[part], generator)
            at_final = torch.zeros_like(final)
            for row, begin, end, place in _places(batch):
                at_final[row, place] = gradient[begin:end]
            (result,) = torch.autograd.grad(final, hidden, at_final)
            yield result


def _row_gradients(decoder: StreamedDecoder, rows: Tensor, generator: torch.Generator) -> Tensor:
    """Gradients of −log p(label) at final hidden states `[rows, d]`: through softmax, p − onehot(label)."""
    rows = rows.clone().requires_grad_()
    with torch.enable_grad():
        logits = decoder.logits(rows)
    at_logits = logits.detach().softmax(-1)
    labels = torch.multinomial(at_logits, 1, generator=generator)
    at_logits.scatter_add_(-1, labels, torch.full_like(labels, -1, dtype=at_logits.dtype))
    (gradient,) = torch.autograd.grad(logits, rows, at_logits)
    return gradient


def _scored(final: Tensor, batch: Batch) -> Tensor:
    """The final hidden states that predict a batch's scored positions, [positions, d]."""
    return torch.cat([final[row, place] for row, _, _, place in _places(batch)])


def _places(batch: Batch) -> Iterator[tuple[int, int, int, slice]]:
    """Each row of a batch, where its positions begin and end among all of the batch, and where in the row."""
    begin = 0
    for row, _, place in batch.scored():
        end = begin + place.stop - place.start
        yield row, begin, end, place
        begin = end


def _pieces(positions: int, vocab_size: int) -> Iterator[slice]:
    """Positions whose logits are held at once."""
    step = max(1, LOGITS_BYTES // (vocab_size * torch.float32.itemsize))
    for begin in range(0, positions, step):
        yield slice(begin, min(begin + step, positions))
