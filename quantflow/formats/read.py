"""Opens an artifact from disk, whatever format it says it has."""

import json
from pathlib import Path

from quantflow.errors import ArtifactError
from quantflow.formats.awq_reader import AwqReader
from quantflow.model.weights import WeightReader

CONFIG_FILE = "config.json"


def open_artifact(folder: Path) -> WeightReader:
    """A reader of the artifact's weights, by its config.json's `quantization_config`.

    Raises:
        ArtifactError: If the folder is no artifact of a format that QuantFlow reads, or is damaged.
    """
    path = folder / CONFIG_FILE
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))["quantization_config"]
        method = settings["quant_method"]
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise ArtifactError(
            "has no config.json with a quantization_config that says how it is quantized", where=str(folder)
        ) from cause
    if method != "awq":
        raise ArtifactError(f"quant_method {method!r} is not one QuantFlow reads; awq is", where=str(path))
    return AwqReader(folder, settings)
