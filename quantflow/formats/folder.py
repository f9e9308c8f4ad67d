"""What every artifact's folder has beside its tensors: config, tokenizer, and where it all comes from."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quantflow.pipeline.digest import file_digest
from quantflow.source.checkpoint import Checkpoint
from quantflow.source.identify import TOKENIZER_FILES

CONFIG_FILE = "config.json"
PROVENANCE_FILE = "quantflow.json"
SCHEMA_VERSION = 1
MAX_SHARD_BYTES = 4_000_000_000
"""Below the 4 GiB that FAT file systems and some object stores take in one piece."""

COPIED_FILES = ("generation_config.json", *TOKENIZER_FILES)
NAMED_ORIGINS = ("hub", "wheel")
"""Kinds of source whose uri says where anyone can get it; a local path says nothing elsewhere."""


def artifact_config(checkpoint: Checkpoint, dtype: str) -> dict[str, Any]:
    """The source's config.json with the data type that its artifact's weights have."""
    config: dict[str, Any] = json.loads((checkpoint.folder / CONFIG_FILE).read_text(encoding="utf-8"))
    config["dtype"] = dtype
    if "torch_dtype" in config:  # what transformers before 5 called it
        config["torch_dtype"] = dtype
    return config


def copy_companions(checkpoint: Checkpoint, folder: Path) -> None:
    """Copy the tokenizer and the generation config beside an artifact's tensors."""
    for name in COPIED_FILES:
        if (checkpoint.folder / name).is_file():
            shutil.copyfile(checkpoint.folder / name, folder / name)


def write_provenance(checkpoint: Checkpoint, folder: Path, facts: Mapping[str, Any]) -> None:
    """Write `quantflow.json`: what was made of which source, and the SHA-256 of every other file.

    Args:
        checkpoint: The source.
        folder: The artifact, complete but for this file.
        facts: Name, format and what belongs to the format.
    """
    source = {
        "identity": checkpoint.identity,
        "kind": checkpoint.kind,
        "dtype": checkpoint.dtype,
        "model_type": checkpoint.model_type,
    }
    if checkpoint.kind in NAMED_ORIGINS:
        source["uri"] = checkpoint.uri
    files = {path.name: file_digest(path) for path in folder.iterdir()}
    content = {"schema_version": SCHEMA_VERSION, **facts, "source": source, "files": files}
    write_json(folder / PROVENANCE_FILE, content)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON that people can read, the same bytes for the same content."""
    path.write_text(
        json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def folder_bytes(folder: Path) -> int:
    """Size of an artifact's files together."""
    return sum(path.stat().st_size for path in folder.iterdir())
