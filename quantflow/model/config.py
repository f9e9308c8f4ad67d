"""A model's config.json, read as transformers reads it."""

from pathlib import Path
from typing import Any

from transformers import AutoConfig

from quantflow.errors import SourceError

CONFIG_FILE = "config.json"


def load_config(folder: Path) -> Any:
    """The config of a Hugging Face folder, without its `quantization_config`, which is left to the reader.

    Raises:
        SourceError: It is not there, or transformers does not take it.
    """
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as cause:  # each architecture raises what it likes about values it does not take
        raise SourceError(
            f"transformers does not take this config.json: {' '.join(str(cause).split())}",
            where=str(folder / CONFIG_FILE),
            hint="It is damaged or was edited: get it again from where the weights are from.",
        ) from cause
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config
