"""What comes after the last block: logits, their KL beside the baseline's, and the loss's gradient there."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantflow.errors import QuantizationError
from quantflow.measure.batches import LOGITS_BYTES, Batch
from quantflow.measure.divergence import kl_divergence
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.head import head_module
from quantflow.model.replaced import forwards_replaced
from quantflow.model.units import HEAD
from quantflow.sensitivity.swap import BlockSwaps, Swap
from quantflow.sensitivity.text import ScanText

SEED = 0
"""Of the labels that are drawn from the model's own distribution: the same text, the same labels."""

HeardLogits = Callable[[str, NDArray[np.int64], Tensor, Tensor], None]
"""Gets a precision, the window of each of some positions, [positions], the lossless logits there and by how
much they change, `[positions, vocab]` both."""

States = Callable[[int], Tensor]
"""Gives what leaves the last block, of the batch of a number, `[B, T, d]`."""


@torch.no_grad()
def streams_kl(
    decoder: StreamedDecoder,
    text: ScanText,
    baseline: States,
    streams: Sequence[States],
    heads: Mapping[int, BlockSwaps] | None = None,
) -> NDArray[np.float64]:
    """KL of streams' next-token distributions from the baseline's, summed up by window.

    The baseline's logits are made once for all streams.

    Args:
        decoder: The model; only its norm and head are used.
        text: The text.
        baseline: What leaves the lossless last block.
        streams: What leaves it where something before it was swapped.
        heads: Number of a stream → the head's codes that make its logits; of others the lossless one does.

    Returns:
        Nats, [streams, windows].

    Raises:
        QuantizationError: A stream's logits are not finite.
    """
    sums = np.zeros((len(streams), len(text.windows)))
    with decoder.loaded_around(), decoder.loaded_head():
        swapped = {number: codes.swap(HEAD, head_module(decoder)) for number, codes in (heads or {}).items()}
        for number, batch in enumerate(text.batches):
            windows = text.window_of_row(batch)
            for row, _, _, scored in _places(batch):
                # Window by window: the final states of all streams at once would be all of them twice.
                reference, *others = (
                    decoder.final(states(number)[row : row + 1])[0, scored] for states in (baseline, *streams)
                )
                for part in _pieces(len(reference), decoder.vocab_size):
                    log_p = decoder.logits(reference[part]).log_softmax(-1)
                    for place, other in enumerate(others):
                        log_q = _logits(decoder, other[part], swapped.get(place)).log_softmax(-1)
                        sums[place, windows[row]] += float(kl_divergence(log_p, log_q).sum())
    if not np.isfinite(sums).all():
        raise QuantizationError(
            "with a unit swapped the model's logits are not finite numbers",
            where="the scan",
            hint="Its codes overflow; quantize to another scheme.",
        )
    return sums


def loss_gradients(
    decoder: StreamedDecoder,
    text: ScanText,
    baseline: States,
    seed: int = SEED,
    heads: Mapping[str, BlockSwaps] | None = None,
    kl_of_heads: dict[str, NDArray[np.float64]] | None = None,
    heard: HeardLogits | None = None,
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
        heads: Precision → the head's codes in it. What they change is exact for a product more, as the
            lossless logits are there.
        kl_of_heads: Precision → where their KL is added to, nats by window, [windows].
        heard: Is told every precision's logits beside the lossless ones.
    """
    with decoder.loaded_around(), decoder.loaded_head():
        swapped = {p: codes.swap(HEAD, head_module(decoder)) for p, codes in (heads or {}).items()}
        for number, batch in enumerate(text.batches):
            hidden = baseline(number).requires_grad_()
            with torch.enable_grad():
                final = decoder.final(hidden)
            rows = _scored(final.detach(), batch)
            gradient = torch.empty_like(rows)
            generator = torch.Generator(rows.device).manual_seed(seed + number)
            kl = torch.empty(len(swapped), len(rows), dtype=torch.float64)
            windows = np.repeat(text.window_of_row(batch), batch.lengths - batch.scored_from)
            for part in _pieces(len(rows), decoder.vocab_size):
                gradient[part], logits = _row_gradients(decoder, rows[part], generator)
                for own, (precision, head) in zip(kl, swapped.items(), strict=True):
                    with torch.no_grad():
                        changed = _logits(decoder, rows[part], head)
                        log_p, log_q = logits.log_softmax(-1), changed.log_softmax(-1)
                        own[part] = kl_divergence(log_p, log_q).cpu()
                    if heard is not None:
                        heard(precision, windows[part], logits, changed - logits)
            for precision, own in zip(swapped, kl, strict=True):
                if kl_of_heads is not None:
                    kl_of_heads[precision] += text.by_window(batch, own.numpy())
            at_final = torch.zeros_like(final)
            for row, begin, end, place in _places(batch):
                at_final[row, place] = gradient[begin:end]
            (result,) = torch.autograd.grad(final, hidden, at_final)
            yield result


def _logits(decoder: StreamedDecoder, rows: Tensor, head: Swap | None) -> Tensor:
    """Logits of final hidden states, by the lossless head or by what stands in for it."""
    if head is None:
        return decoder.logits(rows)
    with forwards_replaced([head_module(decoder)], head):
        return decoder.logits(rows)


def _row_gradients(
    decoder: StreamedDecoder, rows: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Gradients of −log p(label) at final hidden states `[rows, d]`, and the logits.

    Through softmax the gradient is p − onehot(label).
    """
    rows = rows.clone().requires_grad_()
    with torch.enable_grad():
        logits = decoder.logits(rows)
    at_logits = logits.detach().softmax(-1)
    labels = torch.multinomial(at_logits, 1, generator=generator)
    at_logits.scatter_add_(-1, labels, torch.full_like(labels, -1, dtype=at_logits.dtype))
    (gradient,) = torch.autograd.grad(logits, rows, at_logits)
    return gradient, logits.detach()


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
