"""A whole run small enough for tests: the tiny model, letters written here, one INT4 artifact."""

import json
import os
from pathlib import Path

from tests.tiny_models import documents

# A command started elsewhere has to run this checkout's code, whatever is installed.
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}

RECIPE = """\
version: 1
name: tiny
model: {{source: {model}}}
data:
  files: [letters.jsonl]
  calibration: {{windows: 8, length: 64}}
  evaluation: {{length: 64}}
  split: {{calibration: 0.3, selection: 0.2, evaluation: 0.5}}
artifacts:
  - {{name: int4, format: awq, bits: 4, group_size: 32}}
gate:
  perplexity: {{max_increase: {max_increase}}}
  kl: {{max_mean: {max_mean}}}
"""


def write_recipe(
    folder: Path, model: Path, *, letters: int = 80, max_increase: float = 0.5, max_mean: float = 0.5
) -> Path:
    """Write `tiny.yaml` and its data into `folder`; margins are wide enough for a sound artifact to pass."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"text": text, "slice": "letters"}) for text in documents(letters, seed=1)]
    (folder / "letters.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    path = folder / "tiny.yaml"
    path.write_text(
        RECIPE.format(model=model, max_increase=max_increase, max_mean=max_mean), encoding="utf-8"
    )
    return path
