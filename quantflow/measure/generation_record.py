"""What a model went on with after every prompt."""

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict

GENERATION_FILE = "generation.json"


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Generated(_Value):
    """One prompt and what came after it.

    Attributes:
        document: Index of the prompt's document in documents.json.
        slice: The document's slice.
        prompt: Token ids.
        prompt_text: The same as text.
        tokens: Token ids that were generated.
        margins: For each, how far the likeliest token's logit was above the second's.
        text: The generated text.
    """

    document: int
    slice: str
    prompt: tuple[int, ...]
    prompt_text: str
    tokens: tuple[int, ...]
    margins: tuple[float, ...]
    text: str


class GenerationRecord(_Value):
    """What one model generated.

    Attributes:
        samples: One for each prompt, in the same order for every model.
        other_batches: For every prompt whether the same model generated the same in batches of half the size;
            None for an artifact.
    """

    samples: tuple[Generated, ...]
    other_batches: tuple[bool, ...] | None = None


def save_generation(output: Path, record: GenerationRecord) -> None:
    """Write generation.json."""
    text = json.dumps(record.model_dump(mode="json"), sort_keys=True, allow_nan=False, ensure_ascii=False)
    (output / GENERATION_FILE).write_text(text + "\n", encoding="utf-8")


def load_generation(stage_output: Path) -> GenerationRecord:
    """Read what `save_generation` wrote."""
    return GenerationRecord.model_validate_json((stage_output / GENERATION_FILE).read_text(encoding="utf-8"))
