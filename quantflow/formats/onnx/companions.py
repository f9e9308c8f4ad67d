"""What an ONNX artifact's folder has beside its graph, so that it runs by itself."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quantflow.errors import ArtifactError
from quantflow.formats.folder import CONFIG_FILE, artifact_config, copy_companions, write_json
from quantflow.formats.onnx.params import GENAI_CONFIG, GRAPH_FILE, SessionOptions
from quantflow.source.checkpoint import Checkpoint

README_FILE = "README.md"
# Ten lines for a person who finds the folder; `tests/formats/onnx` runs both snippets as they are.
README = """\
# {name}: {what}
Logits of a text with onnxruntime (`pip install onnxruntime transformers`):
```python
import numpy as np, onnxruntime as ort, transformers
ids = np.array([transformers.AutoTokenizer.from_pretrained(".")("Good morning")["input_ids"]])
options = ort.SessionOptions()
{entries}
session = ort.InferenceSession("model.onnx", options, providers=["{provider}"])
given = {{"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": np.arange(ids.size)[None]}}
for past in (i for i in session.get_inputs() if i.name.startswith("past")):
    given[past.name] = np.zeros((1, past.shape[1], 0, {head_size}), np.{dtype})
wanted = {{i.name: given[i.name] for i in session.get_inputs()}}
print(session.run(["logits"], wanted)[0].shape)
```
Twenty more tokens with onnxruntime-genai (`pip install onnxruntime-genai transformers`):
```python
import onnxruntime_genai as og, transformers
tokenizer, model = transformers.AutoTokenizer.from_pretrained("."), og.Model(".")
params = og.GeneratorParams(model)
params.set_search_options(max_length=64, do_sample=False)
generator = og.Generator(model, params)
generator.append_tokens(tokenizer("Good morning")["input_ids"])
for _ in range(20):
    generator.generate_next_token()
print(tokenizer.decode(generator.get_sequence(0)))
```
Ids come from transformers' tokenizer: onnxruntime-genai's own misreads some tokenizer.json files.
"""
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def write_companions(
    checkpoint: Checkpoint,
    base: Path,
    folder: Path,
    name: str,
    what: str,
    session: SessionOptions,
    dtype: str,
) -> None:
    """Write the settings of ONNX Runtime GenAI, the model's config, the tokenizer and the README.

    Args:
        checkpoint: The source.
        base: Folder of the lossless graph, whose genai_config.json is taken.
        folder: The artifact.
        name: The artifact's name.
        what: A few words on how it is quantized.
        session: Options that figures hang on, which genai_config.json repeats.
        dtype: What it computes in, in numpy's words.

    Raises:
        ArtifactError: The builder left no genai_config.json.
    """
    config = genai_config(base, session.entries)
    write_json(folder / GENAI_CONFIG, config)
    write_json(folder / CONFIG_FILE, artifact_config(checkpoint, dtype))
    copy_companions(checkpoint, folder)
    entries = "\n".join(
        f'options.add_session_config_entry("{key}", "{value}")' for key, value in session.entries.items()
    )
    text = README.format(
        name=name,
        what=what,
        entries=entries,
        dtype=dtype,
        head_size=config["model"]["decoder"]["head_size"],
        provider=PROVIDERS[session.provider],
    )
    (folder / README_FILE).write_text(text, encoding="utf-8")


def genai_config(base: Path, entries: Mapping[str, str]) -> dict[str, Any]:
    """The builder's genai_config.json with session options of our own."""
    path = base / GENAI_CONFIG
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        decoder = config["model"]["decoder"]
        int(decoder["head_size"]), int(config["model"]["context_length"])
    except (OSError, ValueError, KeyError) as cause:
        raise ArtifactError(
            "has no settings of ONNX Runtime GenAI that can be read", where=str(path)
        ) from cause
    decoder["session_options"] = decoder.get("session_options", {}) | dict(entries)
    decoder["filename"] = GRAPH_FILE
    return config


def context_length(folder: Path) -> int:
    """Tokens that a model was made for, as its genai_config.json says.

    Raises:
        ArtifactError: It does not say it.
    """
    return int(genai_config(folder, {})["model"]["context_length"])
