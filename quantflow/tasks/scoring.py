"""Log-likelihoods of continuations and greedy text in torch, in batches that outlast an interruption."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quantflow.errors import QuantFlowError
from quantflow.measure.batches import LOGITS_BYTES
from quantflow.model.continuation import Continuation
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.generate import PADDING, generate
from quantflow.tasks.batches import Batches, Scored

# Hidden states of batches that go through a block together where weights do not stay in memory.
STATES_BYTES = 256 << 20


class TorchText:
    """A model that is run block by block in torch.

    Args:
        decoder: The model.
        batch_tokens: Most tokens of a batch, padding included.
        error: Raised where a logit is not finite.
        stays: Whether the weights stay in memory.
    """

    def __init__(
        self, decoder: StreamedDecoder, batch_tokens: int, error: type[QuantFlowError], *, stays: bool
    ) -> None:
        """Nothing is loaded here."""
        self._decoder = decoder
        self._batch_tokens = batch_tokens
        self._error = error
        self._stays = stays

    @property
    def folder(self) -> Path:
        """The model's."""
        return self._decoder.folder

    @property
    def config(self) -> Any:
        """The model's."""
        return self._decoder.config

    def score(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], work: Batches) -> list[Scored]:
        """Score continuations, see `TextModel`."""
        return score_continuations(
            self._decoder, pairs, self._batch_tokens, work, self._error, stays=self._stays
        )

    def go_on(
        self,
        prompts: Sequence[Sequence[int]],
        most_tokens: int,
        is_done: Callable[[Sequence[int]], bool],
        work: Batches,
    ) -> list[Continuation]:
        """Continue prompts greedily, see `TextModel`."""
        return generate_texts(
            self._decoder, prompts, self._batch_tokens, most_tokens, is_done, work, self._error
        )


def batches_of(rows: Sequence[Sequence[int]], batch_tokens: int) -> list[list[int]]:
    """Indices of rows in batches, longest rows first, each of at most so many tokens, padding included.

    Equal rows, in whatever order, come in equal batches: results move with the batch (lm-eval#1645), so both
    sides of a comparison have to have the same.
    """
    order = sorted(range(len(rows)), key=lambda i: (-len(rows[i]), tuple(rows[i]), i))
    batches = []
    while order:
        size = max(1, batch_tokens // len(rows[order[0]]))
        batches.append(order[:size])
        order = order[size:]
    return batches


def score_continuations(
    decoder: StreamedDecoder,
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    batch_tokens: int,
    work: Batches,
    error: type[QuantFlowError],
    *,
    stays: bool,
) -> list[Scored]:
    """Score continuations after their contexts.

    Pairs with the same input, such as answers of one token to one question, share one run of the model.

    Args:
        decoder: The model.
        pairs: Token ids of context and continuation, both not empty, together at most one token longer than
            the model's context.
        batch_tokens: Most tokens of a batch.
        work: Where finished batches are kept and progress is shown.
        error: Raised where a logit is not finite.
        stays: Whether the weights stay in memory; if not, many batches go through a block together.
    """
    inputs: dict[tuple[int, ...], list[int]] = {}
    for number, (context, continuation) in enumerate(pairs):
        inputs.setdefault((*context, *continuation[:-1]), []).append(number)
    rows = list(inputs)
    batches = batches_of(rows, batch_tokens)
    results: dict[int, Scored] = {}
    waiting: list[tuple[str, list[int]]] = []
    held = 0
    with work.track(len(batches)) as advance:
        for number, batch in enumerate(batches):
            key, done = work.find([[rows[row], [pairs[n][1] for n in inputs[rows[row]]]] for row in batch])
            asked = [pair for row in batch for pair in inputs[rows[row]]]
            if done is not None:
                results.update({pair: Scored(*score) for pair, score in zip(asked, done, strict=True)})
                advance(1)
            else:
                waiting.append((key, batch))
                held += len(batch) * len(rows[batch[0]]) * decoder.hidden_size * decoder.dtype.itemsize
            if waiting and (stays or held > STATES_BYTES or number == len(batches) - 1):
                finals = _finals(decoder, [_padded(rows, chosen) for _, chosen in waiting])
                for (key, chosen), final in zip(waiting, finals, strict=True):
                    inside = [(at, rows[row], inputs[rows[row]]) for at, row in enumerate(chosen)]
                    found = _score_batch(decoder, final, inside, pairs, error)
                    work.keep(key, [[score.logprob, score.is_greedy] for score in found.values()])
                    results.update(found)
                    advance(1)
                waiting, held = [], 0
    return [results[number] for number in range(len(pairs))]


def generate_texts(
    decoder: StreamedDecoder,
    prompts: Sequence[Sequence[int]],
    batch_tokens: int,
    most_tokens: int,
    is_done: Callable[[Sequence[int]], bool],
    work: Batches,
    error: type[QuantFlowError],
) -> list[Continuation]:
    """Continue prompts greedily.

    Args:
        decoder: The model.
        prompts: Token ids of each.
        batch_tokens: Most tokens of the prompts of a batch, padding included.
        most_tokens: Tokens to generate for each at most.
        is_done: Whether what was generated ends a text.
        work: Where finished batches are kept and progress is shown.
        error: Raised where a logit is not finite.
    """
    results: dict[int, Continuation] = {}
    batches = batches_of(prompts, batch_tokens)
    with work.track(len(batches)) as advance:
        for batch in batches:
            asked = [list(prompts[row]) for row in batch]
            key, done = work.find([most_tokens, asked])
            if done is None:
                found = generate(decoder, asked, most_tokens, is_done, error)
                work.keep(key, [[c.tokens, c.margins] for c in found])
            else:
                found = [Continuation(tuple(tokens), tuple(margins)) for tokens, margins in done]
            results.update(zip(batch, found, strict=True))
            advance(1)
    return [results[row] for row in range(len(prompts))]


def _padded(rows: Sequence[Sequence[int]], batch: Sequence[int]) -> Tensor:
    longest = len(rows[batch[0]])
    return torch.tensor([[*rows[row], *[PADDING] * (longest - len(rows[row]))] for row in batch])


@torch.no_grad()
def _finals(decoder: StreamedDecoder, batches: Sequence[Tensor]) -> list[Tensor]:
    """Final hidden states of batches, `[B, T, d]` each; no position sees the padding on its right."""
    begun = [decoder.embed(ids) for ids in batches]
    states = [hidden for hidden, _ in begun]
    for index in range(decoder.num_blocks):
        with decoder.loaded_block(index) as block:
            states = [
                calls[index].run(block, hidden) for hidden, (_, calls) in zip(states, begun, strict=True)
            ]
    return [decoder.final(hidden) for hidden in states]


@torch.no_grad()
def _score_batch(
    decoder: StreamedDecoder,
    final: Tensor,
    asked: Sequence[tuple[int, Sequence[int], Sequence[int]]],
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    error: type[QuantFlowError],
) -> Mapping[int, Scored]:
    """Scores of all pairs of a batch: (row, its input, its pairs) and the batch's hidden states in."""
    scores = {}
    step = max(1, LOGITS_BYTES // (decoder.vocab_size * torch.float32.itemsize))
    with decoder.loaded_head():
        for row, ids, numbers in asked:
            scored = max(len(pairs[number][1]) for number in numbers)
            targets = [pairs[number][1] for number in numbers]
            hidden = final[row, len(ids) - scored : len(ids)]
            pieces = [
                _looked_up(
                    decoder, hidden[at : at + step], [_part(t, scored, at, step) for t in targets], error
                )
                for at in range(0, scored, step)
            ]
            for place, number in enumerate(numbers):
                logprob = sum(piece[place][0] for piece in pieces)
                scores[number] = Scored(logprob, all(piece[place][1] for piece in pieces))
    return scores


def _part(target: Sequence[int], scored: int, at: int, step: int) -> tuple[int, Sequence[int]]:
    """Where in a piece of the last `scored` positions a target begins, and its tokens there."""
    offset = scored - len(target)
    begin, end = max(at, offset), min(at + step, scored)
    return begin - at, target[begin - offset : max(begin, end) - offset]


def _looked_up(
    decoder: StreamedDecoder,
    hidden: Tensor,
    targets: Sequence[tuple[int, Sequence[int]]],
    error: type[QuantFlowError],
) -> list[tuple[float, bool]]:
    logits = decoder.logits(hidden).float()
    if not bool(torch.isfinite(logits).all()):
        raise error(
            "the model's logits are not finite numbers",
            where=str(decoder.folder),
            hint="Its weights are damaged, or values overflow: nothing can be measured of it.",
        )
    logprobs = logits.log_softmax(-1)
    best = logprobs.argmax(-1)
    found = []
    for begin, tokens in targets:
        if not tokens:
            found.append((0.0, True))
            continue
        wanted = torch.tensor(tokens, device=logprobs.device)
        rows = logprobs[begin : begin + len(tokens)]
        values = rows.gather(-1, wanted.unsqueeze(-1)).sum(dtype=torch.float64)
        found.append((float(values), bool((best[begin : begin + len(tokens)] == wanted).all())))
    return found
