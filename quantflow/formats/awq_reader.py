"""Opens an AWQ artifact: what its config.json has to say, and what its tensors' shapes have to be."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quantflow.errors import ArtifactError
from quantflow.formats.awq import BITS, PACKED, QWEIGHT
from quantflow.formats.codes_reader import CodesReader, unreadable
from quantflow.formats.layouts import LAYOUTS
from quantflow.model.safetensors_file import TensorSpec


def open_awq(folder: Path, settings: dict[str, Any]) -> CodesReader:
    """A reader of an artifact in AutoAWQ's `gemm` layout.

    Args:
        folder: The artifact.
        settings: `quantization_config` of its config.json.

    Raises:
        ArtifactError: If the settings are not those of the layout, or a tensor is missing, has a shape or
            dtype that does not fit the others, or cannot be read.
    """
    group_size, kept = _group_size(folder, settings), _kept(folder, settings)

    def sizes(parts: Mapping[str, TensorSpec]) -> tuple[int, int, int]:
        qweight = parts[QWEIGHT]
        if len(qweight.shape) != 2 or qweight.shape[0] % group_size:
            raise unreadable(folder, qweight, f"which groups of {group_size} inputs do not divide")
        inputs, words = qweight.shape
        return words * PACKED, inputs, group_size

    def excluded(linear: str) -> str:
        # A runtime skips a module whose name contains one of those it is told not to convert.
        return "modules_to_not_convert names it" if any(module in linear for module in kept) else ""

    return CodesReader(folder, LAYOUTS["awq"], BITS, sizes, excluded, lambda linear, codes: None)


def _group_size(folder: Path, settings: dict[str, Any]) -> int:
    expected = {"quant_method": "awq", "version": "gemm", "bits": BITS, "zero_point": True}
    for key, value in expected.items():
        if settings.get(key) != value:
            raise ArtifactError(
                f"quantization_config has {key} {settings.get(key)!r}; QuantFlow reads {value!r}",
                where=str(folder / "config.json"),
            )
    group_size = settings.get("group_size")
    if type(group_size) is not int or group_size <= 0:
        raise ArtifactError(
            f"quantization_config has group_size {group_size!r}; it has to be a positive whole number",
            where=str(folder / "config.json"),
        )
    return group_size


def _kept(folder: Path, settings: dict[str, Any]) -> list[str]:
    kept = settings.get("modules_to_not_convert") or []
    if not isinstance(kept, list) or not all(isinstance(module, str) and module for module in kept):
        raise ArtifactError(
            f"quantization_config has modules_to_not_convert {kept!r}; it has to be a list of names",
            where=str(folder / "config.json"),
        )
    return kept
