"""Greedy generation by a model's own forward, with its own key-value cache."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from quantflow.errors import QuantFlowError
from quantflow.model.continuation import Continuation
from quantflow.model.decoder import StreamedDecoder

PADDING = 0
"""Token id that fills rows up; attention masks it."""


@torch.no_grad()
def generate(
    decoder: StreamedDecoder,
    prompts: Sequence[Sequence[int]],
    most_tokens: int,
    is_done: Callable[[Sequence[int]], bool],
    error: type[QuantFlowError],
) -> list[Continuation]:
    """Go on with all prompts at once, always with the likeliest token.

    Rows are filled up on the left and masked; a row that is done stays in the batch, so that what the others
    are computed beside does not hang on when it ended.

    Args:
        decoder: The model.
        prompts: Token ids of each prompt, one at least.
        most_tokens: Tokens to generate for each at most.
        is_done: Whether what was generated for a row ends it.
        error: Raised where logits are not finite.
    """
    longest = max(map(len, prompts))
    rows = [[PADDING] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    marks = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    ids = torch.tensor(rows, device=decoder.device)
    mask = torch.tensor(marks, device=decoder.device)
    tokens: list[list[int]] = [[] for _ in prompts]
    margins: list[list[float]] = [[] for _ in prompts]
    done = [False] * len(prompts)
    cache: Any = None
    with decoder.whole() as model:
        takes = inspect.signature(model.forward).parameters
        while not all(done) and max(map(len, tokens)) < most_tokens:
            positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
            optional = {"position_ids": positions, "logits_to_keep": 1}
            output = model(
                input_ids=ids,
                attention_mask=mask,
                past_key_values=cache,
                use_cache=True,
                **{name: value for name, value in optional.items() if name in takes},
            )
            cache = output.past_key_values
            best = _finite(output.logits[:, -1].float(), decoder, error).topk(2, dim=-1)
            for row, (found, values) in enumerate(
                zip(best.indices.tolist(), best.values.tolist(), strict=True)
            ):
                if not done[row]:
                    tokens[row].append(found[0])
                    margins[row].append(values[0] - values[1])
                    done[row] = is_done(tokens[row])
            ids = best.indices[:, :1]
            mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
    return [Continuation(tuple(t), tuple(m)) for t, m in zip(tokens, margins, strict=True)]


def _finite(logits: Tensor, decoder: StreamedDecoder, error: type[QuantFlowError]) -> Tensor:
    if not bool(torch.isfinite(logits).all()):
        raise error(
            "the model's logits are not finite numbers",
            where=str(decoder.folder),
            hint="Its weights are damaged, or values overflow: nothing can be measured of it.",
        )
    return logits
