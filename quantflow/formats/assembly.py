"""The finished output of the assemble stage: the artifact's folder and what is in it."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from quantflow.errors import ArtifactError

ARTIFACT_FOLDER = "artifact"
WRITTEN_FOLDER = "written"
"""Where a stage that tried an artifact leaves it, to be passed on and not made again."""
READ_ONLY = 0o444
"""As all that the store holds."""
_RECORD = "assemble.json"


@dataclass(frozen=True)
class ImportedScheme:
    """How somebody else's artifact says that its weights are quantized.

    Attributes:
        method: `awq`, `gptq` or `compressed-tensors`; of a graph what products compute in, such as
            `weights-int4`; None where nothing is quantized.
        bits: Bits per weight.
        group_size: Inputs that share a scale, -1 for all of a layer's; None where nothing is quantized.
        dtype: Data type of one that is not quantized.
    """

    method: str | None
    bits: int
    group_size: int | None
    dtype: str | None


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
        imported: What the settings of somebody else's artifact say of how it is quantized; None for one that
            was made here.
    """

    folder: Path
    name: str
    format: str
    bytes: int
    weight_bytes: int
    source_weight_bytes: int
    quantized_linears: int
    kept_units: tuple[str, ...]
    imported: ImportedScheme | None = None


def save_assembly(output: Path, assembly: Assembly) -> None:
    """Write `assemble.json`; a folder inside the output is where it always is and is not stored."""
    record = {name: value for name, value in vars(assembly).items() if name not in ("folder", "imported")}
    if assembly.imported is not None:
        record |= {"folder": str(assembly.folder), "imported": vars(assembly.imported)}
    (output / _RECORD).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def load_assembly(stage_output: Path) -> Assembly:
    """Read what the assemble stage wrote.

    Raises:
        ArtifactError: The folder of somebody else's artifact is no longer there.
    """
    record = json.loads((stage_output / _RECORD).read_text(encoding="utf-8"))
    kept = tuple(record.pop("kept_units"))
    folder = stage_output / record.pop("folder", ARTIFACT_FOLDER)  # an absolute path replaces the left side
    imported = record.pop("imported", None)
    if imported is not None and not folder.is_dir():
        raise ArtifactError("the imported artifact is no longer there", where=str(folder))
    scheme = ImportedScheme(**imported) if imported is not None else None
    return Assembly(folder=folder, kept_units=kept, imported=scheme, **record)


def artifact_folder(stage_output: Path) -> Path:
    """The directory that a runtime loads: in the output where it was made here, elsewhere where imported.

    Raises:
        ArtifactError: The folder of somebody else's artifact is no longer there.
    """
    made = stage_output / ARTIFACT_FOLDER
    return made if made.is_dir() else load_assembly(stage_output).folder


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
