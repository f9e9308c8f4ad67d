"""The tokens that end what a model generates, as its files say."""

import json
from pathlib import Path
from typing import Any

GENERATION_CONFIG, CONFIG = "generation_config.json", "config.json"


def end_tokens(folder: Path, tokenizer: Any) -> frozenset[int]:
    """Ids of all end tokens: of generation_config.json, else of config.json, and the tokenizer's own."""
    for name in (GENERATION_CONFIG, CONFIG):
        path = folder / name
        found = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id") if path.is_file() else None
        if found is not None:
            ids = found if isinstance(found, list) else [found]
            return frozenset({int(i) for i in ids} | {int(tokenizer.eos_token_id)})
    return frozenset({int(tokenizer.eos_token_id)})
