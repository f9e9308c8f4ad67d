"""The finished output of the assemble stage: the artifact's folder and what is in it."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

ARTIFACT_FOLDER = "artifact"
WRITTEN_FOLDER = "written"
"""Where a stage that tried an artifact leaves it, to be passed on and not made again."""
READ_ONLY = 0o444
"""As all that the store holds."""
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


def pass_on(finished: Path, output: Path) -> None:
    """Give finished files a place in an output without writing them once more, where the file system allows.

    Args:
        finished: Their folder, in the store or among what lets a stage go on.
        output: Gets files of the same names; those of an interrupted run are replaced.
    """
    for source in sorted(path for path in finished.rglob("*") if path.is_file()):
        target = output / source.relative_to(finished)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
        target.chmod(READ_ONLY)  # the store leaves files that have other names as they are
