"""What a file's name says of its content."""

from pathlib import PurePath
from typing import Literal

Format = Literal["jsonl", "json", "txt", "csv", "parquet"]
Compression = Literal["", "gz", "bz2", "xz", "zst", "zip"]

FORMATS: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".txt": "txt",
    ".text": "txt",
    ".md": "txt",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
COMPRESSIONS: dict[str, Compression] = {
    ".gz": "gz",
    ".bz2": "bz2",
    ".xz": "xz",
    ".zst": "zst",
    ".zip": "zip",
}


def compression_of_name(name: str) -> Compression:
    """How a file of this name is compressed; empty where it is not."""
    return COMPRESSIONS.get(PurePath(name).suffix.lower(), "")


def format_of_name(name: str) -> Format | None:
    """The format of a file of this name, a compression's ending left aside; None where it is not known."""
    return FORMATS.get(PurePath(_uncompressed(name)).suffix.lower())


def stem(name: str) -> str:
    """The name without the endings of its compression and its format: `a.b` of `a.b.jsonl.gz`."""
    inner = _uncompressed(name)
    return PurePath(inner).stem if PurePath(inner).suffix.lower() in FORMATS else inner


def _uncompressed(name: str) -> str:
    return PurePath(name).stem if compression_of_name(name) else name
