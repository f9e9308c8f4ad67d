"""Whether an artifact's tensors are the baseline's, bit by bit, in the same model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHUNK = 16 << 20
"""Bytes compared at once."""

NEUTRAL = ("_name_or_path", "dtype", "torch_dtype", "transformers_version")
"""Keys of config.json that say nothing of what is computed, the tensors' types being compared themselves."""

_LARGEST_HEADER = 100 << 20  # what the format allows
_LENGTH_BYTES = 8


@dataclass(frozen=True)
class _Tensor:
    """Where a tensor lies.

    Attributes:
        kind: Its type and shape.
        file: The file.
        begin: Its first byte in the file.
        size: Its bytes.
    """

    kind: tuple[str, tuple[int, ...]]
    file: Path
    begin: int
    size: int


def same_tensors(baseline: Path, artifact: Path) -> bool:
    """Whether two folders hold the same tensors under the same names, for configurations that compute alike.

    Headers are compared first, so that of what is quantized no weight is read.

    Args:
        baseline: The lossless model's folder.
        artifact: The artifact's.
    """
    if _config(baseline) is None or _config(baseline) != _config(artifact):
        return False
    own, other = _tensors(baseline), _tensors(artifact)
    if not own or other is None or own.keys() != other.keys():
        return False
    if any(own[name].kind != other[name].kind or own[name].size != other[name].size for name in own):
        return False
    return all(_same_bytes(own[name], other[name]) for name in own)


def _config(folder: Path) -> Mapping[str, Any] | None:
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict):
        return None
    return {name: value for name, value in content.items() if name not in NEUTRAL}


def _tensors(folder: Path) -> dict[str, _Tensor] | None:
    """All tensors by name; None where a file is damaged or two have one name."""
    found: dict[str, _Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with path.open("rb") as file:
                length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
                if length > _LARGEST_HEADER:
                    return None
                header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            for name, entry in header.items():
                if name in found:
                    return None
                begin, end = entry["data_offsets"]
                kind = (str(entry["dtype"]), tuple(entry["shape"]))
                found[name] = _Tensor(kind, path, _LENGTH_BYTES + length + begin, end - begin)
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return None
    return found


def _same_bytes(own: _Tensor, other: _Tensor) -> bool:
    with own.file.open("rb") as mine, other.file.open("rb") as theirs:
        mine.seek(own.begin)
        theirs.seek(other.begin)
        left = own.size
        while left:
            step = min(CHUNK, left)
            one, two = mine.read(step), theirs.read(step)
            if one != two or len(one) != step:
                return False
            left -= step
    return True
