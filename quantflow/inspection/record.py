"""The finished output of the inspect stage, and what counts as a model that knows nothing."""

import math
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

NEAR_RANDOM_SHARE = 0.9
"""Share of ln(vocabulary size), the loss of guessing every token with equal chance, from which a model counts
as guessing. Untrained models were measured at 0.97 to 1.02; trained ones, of 0.2 to 135 million parameters,
at 0.11 to 0.8 on the text that suits them best, of several that are not theirs."""

_RECORD = "inspect.json"


class Generation(BaseModel):
    """What a model said, always taking the likeliest token.

    Attributes:
        prompt: What it was given.
        text: How it went on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str
    text: str


class Inspection(BaseModel):
    """What was found out about a model before any work was put into it.

    Attributes:
        vocab_size: Number of logits per position.
        tensors: Number of tensors, all of them finite.
        perplexities: Built-in text → perplexity of the model on it.
        characters_per_token: Built-in text → characters that a token stands for.
        chat_template: Whether the tokenizer has a chat template.
        generations: What it says to the beginnings of built-in texts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    vocab_size: int
    tensors: int
    perplexities: Mapping[str, float]
    characters_per_token: Mapping[str, float]
    chat_template: bool
    generations: tuple[Generation, ...]


def near_random_loss(vocab_size: int) -> float:
    """Loss, nats per token, from which a model with this vocabulary counts as guessing."""
    return NEAR_RANDOM_SHARE * math.log(vocab_size)


def save_inspection(output: Path, inspection: Inspection) -> None:
    """Write `inspect.json`."""
    (output / _RECORD).write_text(inspection.model_dump_json(indent=2) + "\n", encoding="utf-8")


def load_inspection(stage_output: Path) -> Inspection:
    """Read what the inspect stage wrote."""
    return Inspection.model_validate_json((stage_output / _RECORD).read_text(encoding="utf-8"))
