"""Opens an artifact from disk, whatever format it says it has."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from quantflow.errors import ArtifactError
from quantflow.formats.awq_reader import open_awq
from quantflow.formats.compressed_tensors import CompressedReader
from quantflow.formats.folder import CONFIG_FILE, PROVENANCE_FILE
from quantflow.formats.gptq_reader import open_gptq
from quantflow.model.weights import SafetensorsReader, WeightReader

_OPENERS: Mapping[str, Callable[[Path, dict[str, Any]], WeightReader]] = {
    "awq": open_awq,
    "gptq": open_gptq,
    "compressed-tensors": CompressedReader,
}
# Ends of the names of tensors that are codes, whatever wrote them.
CODES = (".qweight", ".weight_packed", ".qzeros", ".weight_scale", ".SCB", ".absmax")


def open_artifact(folder: Path) -> WeightReader:
    """A reader of the artifact's weights, by its config.json's `quantization_config`.

    A folder without one is a lossless export if its quantflow.json says so, or if it has no quantflow.json
    and holds no codes, as somebody else's may: a quantized artifact that lost its `quantization_config` must
    not be read as something else.

    Raises:
        ArtifactError: If the folder is no artifact of a format that QuantFlow reads, or is damaged.
    """
    path = folder / CONFIG_FILE
    settings = _read_object(path).get("quantization_config")
    if settings is None and _says_it_is_plain(folder):
        return SafetensorsReader(folder, ArtifactError)
    if settings is None and not (folder / PROVENANCE_FILE).is_file() and path.is_file():
        return _without_codes(SafetensorsReader(folder, ArtifactError))
    method = settings.get("quant_method") if isinstance(settings, dict) else None
    if not isinstance(settings, dict) or method is None:
        raise ArtifactError(
            "has no config.json with a quantization_config that says how it is quantized", where=str(folder)
        )
    if not isinstance(method, str) or method not in _OPENERS:
        raise ArtifactError(
            f"quant_method {method!r} is not one QuantFlow reads; {', '.join(_OPENERS)} are",
            where=str(path),
        )
    return _OPENERS[method](folder, settings)


def _without_codes(reader: SafetensorsReader) -> SafetensorsReader:
    codes = [name for name in sorted(reader.names()) if name.endswith(CODES)]
    if codes:
        raise ArtifactError(
            f"holds codes ({codes[0]}), but has no config.json with a quantization_config that says how it "
            "is quantized",
            where=str(reader.folder),
        )
    return reader


def _says_it_is_plain(folder: Path) -> bool:
    path = folder / PROVENANCE_FILE
    return path.is_file() and _read_object(path).get("format") == "hf"


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as cause:
        raise ArtifactError(
            f"has no {path.name} that can be read, which says how it is quantized (quantization_config)",
            where=str(path.parent),
        ) from cause
    if not isinstance(content, dict):
        raise ArtifactError(f"{path.name} is not a JSON object", where=str(path))
    return content
