"""The tokens that end what a model generates, as its files say."""

import json
from pathlib import Path
from typing import Any

from quantflow.formats.onnx.params import GENAI_CONFIG

GENERATION_CONFIG, CONFIG = "generation_config.json", "config.json"


def end_tokens(folder: Path, tokenizer: Any) -> frozenset[int]:
    """Ids of all end tokens: what its files say, and the tokenizer's own.

    That is generation_config.json, else config.json, else, beside a graph, settings of ONNX Runtime GenAI.
    """
    for name in (GENERATION_CONFIG, CONFIG, GENAI_CONFIG):
        path = folder / name
        settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        found = (settings.get("model", {}) if name == GENAI_CONFIG else settings).get("eos_token_id")
        if found is not None:
            ids = found if isinstance(found, list) else [found]
            return frozenset({int(i) for i in ids} | {int(tokenizer.eos_token_id)})
    return frozenset({int(tokenizer.eos_token_id)})
