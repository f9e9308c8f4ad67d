"""Whether a model reads and writes text: perplexity on built-in texts, and a few greedy tokens."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantflow.errors import SourceError
from quantflow.inspection.record import Generation, near_random_loss
from quantflow.inspection.size import GENERATED_TOKENS, RESIDENT_BYTES
from quantflow.inspection.suspicion import Suspicion
from quantflow.inspection.texts import READING, prompts
from quantflow.inspection.tokenizer import LARGE_VOCABULARY
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.resident import resident
from quantflow.pipeline.events import Reporter

WEAK_SHARE = 0.6
"""Share of ln(vocabulary size), with a large vocabulary, from which a baseline is weak: what frequencies of
words alone give. Models that read their language were measured at 0.1 to 0.35."""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Speech:
    """What a model made of the built-in texts.

    Attributes:
        perplexities: Text → perplexity.
        generations: What it says to the beginnings.
        suspicions: What looks broken.
    """

    perplexities: Mapping[str, float]
    generations: tuple[Generation, ...]
    suspicions: tuple[Suspicion, ...]


def try_model(decoder: StreamedDecoder, tokenizer: Any, reporter: Reporter) -> Speech:
    """Let a model read and go on with the built-in texts.

    Raises:
        SourceError: Its logits are not finite numbers.
    """
    with (
        reporter.track("Letting the model read and speak, forwards", 1 + GENERATED_TOKENS) as advance,
        resident(decoder, RESIDENT_BYTES),
    ):
        losses = _losses(decoder, tokenizer)
        advance(1)
        said = _generate(decoder, tokenizer, advance)
    suspicions = [*_reading_suspicions(losses, decoder.vocab_size, reporter)]
    if not any(is_text(ids, tokenizer) for _, ids in said):
        samples = [str(tokenizer.decode(ids)) for _, ids in said]
        suspicions.append(
            Suspicion(
                "generation-is-no-text",
                f"The model answers none of {len(said)} prompts with text but, for example, with "
                f"{samples[0]!r}.",
                "Its weights are damaged, or do not belong to its config.json or its tokenizer.",
                {"samples": list(samples)},
            )
        )
    return Speech(
        perplexities={kind: round(math.exp(loss), 3) for kind, loss in losses.items()},
        generations=tuple(
            Generation(prompt=prompt, text=str(tokenizer.decode(ids)).replace("\0", REPLACEMENT))
            for prompt, ids in said
        ),
        suspicions=tuple(suspicions),
    )


def is_text(ids: Sequence[int], tokenizer: Any) -> bool:
    """Whether generated tokens are text: not special ones alone, not one over and over, and readable."""
    plain = [i for i in ids if i not in set(tokenizer.all_special_ids)]
    if not plain or (len(ids) > 1 and len(set(ids)) == 1):
        return False
    return any(character.isalnum() for character in str(tokenizer.decode(plain)).replace(REPLACEMENT, ""))


def _reading_suspicions(losses: Mapping[str, float], vocab_size: int, reporter: Reporter) -> list[Suspicion]:
    best = min(losses, key=losses.__getitem__)
    perplexity = math.exp(losses[best])
    detail = {kind: round(math.exp(loss), 1) for kind, loss in losses.items()}
    if losses[best] >= near_random_loss(vocab_size):
        return [
            Suspicion(
                "baseline-near-random",
                f"The model predicts no better than chance: of {len(losses)} built-in texts it reads "
                f"{best!r} best, with a perplexity of {perplexity:,.0f} and a vocabulary of {vocab_size:,}.",
                "Its weights are damaged or untrained, or do not belong to its config.json or its tokenizer.",
                {"perplexities": dict(detail)},
            )
        ]
    if vocab_size >= LARGE_VOCABULARY and losses[best] >= WEAK_SHARE * math.log(vocab_size):
        reporter.event(
            "baseline-is-weak",
            f"Of {len(losses)} built-in texts in English, Chinese and code the model reads {best!r} best, "
            f"with a perplexity of {perplexity:,.0f}: hardly better than by how often words occur.",
            perplexities=dict(detail),
        )
    return []


@torch.no_grad()
def _final(decoder: StreamedDecoder, rows: Sequence[Sequence[int]]) -> Tensor:
    """Final hidden states `[B, T, d]` of token ids, filled on the right, which no earlier position sees."""
    longest = max(len(row) for row in rows)
    hidden, calls = decoder.embed(torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows]))
    for index in range(decoder.num_blocks):
        with decoder.loaded_block(index) as block:
            hidden = calls[index].run(block, hidden)
    return decoder.final(hidden)


def _losses(decoder: StreamedDecoder, tokenizer: Any) -> dict[str, float]:
    """Built-in text → mean loss, nats per token."""
    ids = [list(tokenizer(text).input_ids) for text in READING.values()]
    hidden = _final(decoder, ids)
    losses = {}
    with decoder.loaded_head():
        for row, (kind, own) in enumerate(zip(READING, ids, strict=True)):
            if len(own) < 2:  # nothing to predict: the tokenizer's check has said so
                losses[kind] = math.inf
                continue
            logits = _finite(decoder.logits(hidden[row, : len(own) - 1]), decoder)
            targets = torch.tensor(own[1:], device=logits.device)
            losses[kind] = float(torch.nn.functional.cross_entropy(logits.float(), targets))
    return losses


def _generate(
    decoder: StreamedDecoder, tokenizer: Any, advance: Callable[[int], None]
) -> list[tuple[str, list[int]]]:
    """Prompts and the likeliest tokens after each, all prompts at once."""
    begun = [(prompt, list(tokenizer(prompt).input_ids)) for prompt in prompts()]
    rows = [list(ids) for _, ids in begun if ids]
    for _ in range(GENERATED_TOKENS):
        hidden = _final(decoder, rows)
        last = torch.stack([hidden[row, len(ids) - 1] for row, ids in enumerate(rows)])
        for row, token in enumerate(_finite(decoder.logits(last), decoder).argmax(-1).tolist()):
            rows[row].append(int(token))
        advance(1)
    return [
        (prompt, row[len(ids) :]) for (prompt, ids), row in zip([b for b in begun if b[1]], rows, strict=True)
    ]


def _finite(logits: Tensor, decoder: StreamedDecoder) -> Tensor:
    if not bool(torch.isfinite(logits).all()):
        raise SourceError(
            "the model's logits are not finite numbers",
            where=str(decoder.folder),
            hint="Its weights are damaged, or its values overflow: nothing can be measured of it.",
        )
    return logits
