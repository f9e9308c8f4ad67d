"""Log-likelihoods of continuations and greedy text in ONNX Runtime, with the graph's key-value cache.

One prompt at a time: on a CPU GroupQueryAttention takes a chunk with a past for a batch of one only. So the
batches of both sides are the same by themselves.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantflow.errors import QuantFlowError
from quantflow.model.continuation import Continuation
from quantflow.runtime.ort import OnnxModel, Sequel
from quantflow.tasks.batches import Batches, Scored

NOISE_PIECE = 32
"""Tokens that go through a graph at once where it is run in another way than usual: products of other shapes,
attention over a past; few enough that most prompts are cut."""


class GraphText:
    """A graph that is asked about token ids.

    Args:
        model: The loaded graph.
        config: The model's config, in transformers' terms.
        error: Raised where a logit is not finite.
        at_once: Tokens that go through the graph at once at most; None for as many as its runtime takes.
    """

    def __init__(
        self, model: OnnxModel, config: Any, error: type[QuantFlowError], at_once: int | None = None
    ) -> None:
        """Nothing is run here."""
        self._model = model
        self._config = config
        self._error = error
        self._at_once = at_once

    @property
    def folder(self) -> Path:
        """The graph's."""
        return self._model.folder

    @property
    def config(self) -> Any:
        """The model's."""
        return self._config

    def score(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], work: Batches) -> list[Scored]:
        """Score continuations, see `TextModel`; answers to one question share one run over the question."""
        contexts: dict[tuple[int, ...], list[int]] = {}
        for number, (context, _) in enumerate(pairs):
            contexts.setdefault(tuple(context), []).append(number)
        results: dict[int, Scored] = {}
        with work.track(len(contexts)) as advance:
            for context in sorted(contexts, key=lambda ids: (-len(ids), ids)):
                numbers = contexts[context]
                targets = [list(pairs[number][1]) for number in numbers]
                key, done = work.find([list(context), targets])
                if done is None:
                    done = [[score.logprob, score.is_greedy] for score in self._after(context, targets)]
                    work.keep(key, done)
                results.update({n: Scored(*score) for n, score in zip(numbers, done, strict=True)})
                advance(1)
        return [results[number] for number in range(len(pairs))]

    def go_on(
        self,
        prompts: Sequence[Sequence[int]],
        most_tokens: int,
        is_done: Callable[[Sequence[int]], bool],
        work: Batches,
    ) -> list[Continuation]:
        """Continue prompts greedily, see `TextModel`."""
        results = []
        with work.track(len(prompts)) as advance:
            for prompt in prompts:
                key, done = work.find([most_tokens, [list(prompt)]])
                if done is None:
                    found = self._continued(prompt, most_tokens, is_done)
                    work.keep(key, [[found.tokens, found.margins]])
                else:
                    ((tokens, margins),) = done
                    found = Continuation(tuple(tokens), tuple(margins))
                results.append(found)
                advance(1)
        return results

    @torch.no_grad()
    def _after(self, context: Sequence[int], targets: Sequence[Sequence[int]]) -> list[Scored]:
        sequel = self._model.start(len(context) + max(map(len, targets)))
        first = self._last(sequel, context)
        scores = []
        for target in targets:
            sequel.back_to(len(context))
            logprob, greedy = self._looked_up(first, target[:1])
            for begin, logits in self._pieces(sequel, target[:-1]):
                more = self._looked_up(logits, target[1 + begin : 1 + begin + len(logits)])
                logprob, greedy = logprob + more[0], greedy and more[1]
            scores.append(Scored(logprob, greedy))
        return scores

    @torch.no_grad()
    def _continued(
        self, prompt: Sequence[int], most_tokens: int, is_done: Callable[[Sequence[int]], bool]
    ) -> Continuation:
        sequel = self._model.start(len(prompt) + most_tokens)
        last = self._last(sequel, prompt)
        tokens: list[int] = []
        margins: list[float] = []
        while True:
            best = last[-1].topk(2)
            tokens.append(int(best.indices[0]))
            margins.append(float(best.values[0] - best.values[1]))
            if is_done(tokens) or len(tokens) == most_tokens:
                return Continuation(tuple(tokens), tuple(margins))
            last = self._last(sequel, tokens[-1:])

    def _last(self, sequel: Sequel, ids: Sequence[int]) -> Tensor:
        """Logits after the last of some tokens, [1, vocab]."""
        *_, (_, logits) = self._pieces(sequel, ids)
        return logits[-1:]

    def _pieces(self, sequel: Sequel, ids: Sequence[int]) -> Iterator[tuple[int, Tensor]]:
        """First token and logits, [tokens, vocab], of every piece of a text."""
        for begin, logits in sequel.pieces(np.asarray(ids, dtype=np.int64), self._at_once):
            found = torch.from_numpy(logits)
            if not bool(torch.isfinite(found).all()):
                raise self._error(
                    "the graph's logits are not finite numbers",
                    where=str(self.folder),
                    hint="Its weights are damaged, or values overflow: nothing can be measured of it.",
                )
            yield begin, found

    def _looked_up(self, logits: Tensor, target: Sequence[int]) -> tuple[float, bool]:
        """Log-probability of tokens, nats, and whether each is the likeliest."""
        wanted = torch.tensor(target, dtype=torch.int64)
        logprobs = logits.log_softmax(-1)
        values = logprobs.gather(-1, wanted.unsqueeze(-1)).sum(dtype=torch.float64)
        return float(values), bool((logprobs.argmax(-1) == wanted).all())
