"""The finished output of the assemble stage: the artifact's folder and what is in it."""

import json
from dataclasses import dataclass
from pathlib import Path

ARTIFACT_FOLDER = "artifact"
_RECORD = "assemble.json"


@dataclass(frozen=True)
class Assembly:
    """An artifact on disk.

    Attributes:
        folder: The directory that a runtime loads.
        name: The artifact's name.
        format: Its layout, e.g. `awq`.
        bytes: Size of its files together.
        weight_bytes: Size of its tensors alone.
        source_weight_bytes: Size of the source's tensors.
        quantized_linears: How many linear layers are stored as codes.
        kept_units: Units of the blocks that are stored as in the source, e.g. `model.layers.0.down`.
    """

    folder: Path
    name: str
    format: str
    bytes: int
    weight_bytes: int
    source_weight_bytes: int
    quantized_linears: int
    kept_units: tuple[str, ...]


def save_assembly(output: Path, assembly: Assembly) -> None:
    """Write `assemble.json`; the folder is where it always is and is not stored."""
    record = {name: value for name, value in vars(assembly).items() if name != "folder"}
    (output / _RECORD).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def load_assembly(stage_output: Path) -> Assembly:
    """Read what the assemble stage wrote."""
    record = json.loads((stage_output / _RECORD).read_text(encoding="utf-8"))
    kept = tuple(record.pop("kept_units"))
    return Assembly(folder=stage_output / ARTIFACT_FOLDER, kept_units=kept, **record)
