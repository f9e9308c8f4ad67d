"""What is known of a recipe's model before anything runs; weights are never fetched for it."""

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from quantflow.errors import SourceError
from quantflow.plan.shape import (
    BYTES_OF,
    ModelShape,
    UnknownShapeError,
    shape_from_config,
    shape_from_gguf,
)
from quantflow.source.checkpoint import load_checkpoint
from quantflow.source.gguf_header import parse_header, read_header
from quantflow.source.identify import CONFIG_NAME, pickle_files
from quantflow.source.uri import SourceKind, SourceRef, WheelMember
from quantflow.source.wheel import cached_wheel

WEIGHTS = "model*.safetensors"
TOKENIZER = "tokenizer.json"
# Weights take a byte or more; a config that makes more of them than that does not belong to its files, and is
# for the source stage to refuse in its own words.
MOST_PARAMETERS_PER_BYTE = 1
# safetensors' names of dtypes → torch's.
_HEADER_DTYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}


@dataclass(frozen=True)
class PlannedModel:
    """What can be said of a model.

    Attributes:
        kind: How the recipe names it.
        shape: Its sizes; None where they cannot be told.
        unknown: Why not; empty where they can.
        weight_bytes: Size of the checkpoint's weights, once it is there; None where it cannot be told.
        download_bytes: What has to be fetched first; 0 for what is here, None where it cannot be told.
        tokenizer: The model's tokenizer.json; None where it is not here.
        converted: Whether the source stage makes a checkpoint of it in the workspace.
    """

    kind: SourceKind
    shape: ModelShape | None = None
    unknown: str = ""
    weight_bytes: int | None = None
    download_bytes: int | None = None
    tokenizer: Path | None = None
    converted: bool = False


def find_model(ref: SourceRef, revision: str | None, stored: Path | None) -> PlannedModel:
    """Look at config.json and headers of a model.

    Args:
        ref: The recipe's source.
        revision: Commit of a hub id.
        stored: Finished output of the source stage; None where it has not run.

    Raises:
        RecipeError: The architecture is not supported.
    """
    try:
        if stored is not None:
            return _from_folder(ref.kind, load_checkpoint(stored).folder)
        if ref.wheel is not None:
            return _from_wheel(ref.wheel)
        if ref.path is None:
            return _from_hub(ref.uri, revision)
        if ref.kind == "gguf":
            return _converted(ref.kind, shape_from_gguf(read_header(ref.path)), download=0)
        return _from_folder(ref.kind, ref.path)
    except UnknownShapeError as error:
        return PlannedModel(ref.kind, unknown=str(error))
    except SourceError as error:  # the run will refuse it in the same words; the plan goes on without it
        return PlannedModel(ref.kind, unknown=error.message)


def _from_folder(kind: SourceKind, folder: Path) -> PlannedModel:
    shape = shape_from_config(_read_config(folder / CONFIG_NAME))
    files, pickled = sorted(folder.glob(WEIGHTS)), pickle_files(folder)
    if dtypes := _header_dtypes(files):
        shape = replace(shape, dtype=max(sorted(dtypes), key=dtypes.__getitem__))
    tokenizer = folder / TOKENIZER
    weight_bytes = sum(path.stat().st_size for path in files or pickled)
    if 0 < MOST_PARAMETERS_PER_BYTE * weight_bytes < shape.parameters:
        raise UnknownShapeError(
            f"config.json describes {shape.parameters:,} parameters, the weights have {weight_bytes:,} bytes"
        )
    return PlannedModel(
        kind,
        shape,
        weight_bytes=weight_bytes,
        download_bytes=0,
        tokenizer=tokenizer if tokenizer.is_file() else None,
        converted=bool(pickled),
    )


def _from_hub(repository: str, commit: str | None) -> PlannedModel:
    from quantflow.source.hub import fetch_config

    path = fetch_config(repository, commit)
    shape = shape_from_config(_read_config(path))
    here = sum(file.stat().st_size for file in path.parent.glob(WEIGHTS))
    if shape.dtype is None:
        return PlannedModel("hub", shape, "config.json does not say in which dtype the weights are stored")
    weights = shape.parameters * BYTES_OF[shape.dtype]
    tokenizer = path.parent / TOKENIZER
    return PlannedModel(
        "hub",
        shape,
        weight_bytes=weights,
        download_bytes=max(0, weights - here),
        tokenizer=tokenizer if tokenizer.is_file() else None,
    )


def _from_wheel(source: WheelMember) -> PlannedModel:
    wheel = cached_wheel(source)
    if wheel is None:
        return PlannedModel(
            "wheel", unknown="the wheel has not been fetched yet, and what is inside it is not known before"
        )
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as file:
            size = archive.getinfo(source.member).file_size
            # Seeking forward in a packed file reads on, which is no more than the header is long.
            header = parse_header(file, size, wheel / source.member)  # type: ignore[arg-type]
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        return PlannedModel("wheel", unknown=f"the fetched wheel cannot be read: {error}")
    return _converted("wheel", shape_from_gguf(header), download=0)


def _converted(kind: SourceKind, shape: ModelShape, download: int) -> PlannedModel:
    assert shape.dtype is not None  # a conversion chooses it
    weights = shape.parameters * BYTES_OF[shape.dtype]
    return PlannedModel(kind, shape, weight_bytes=weights, download_bytes=download, converted=True)


def _read_config(path: Path) -> Mapping[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnknownShapeError(f"config.json cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise UnknownShapeError("config.json is not a JSON object")
    return config


def _header_dtypes(files: list[Path]) -> dict[str, int]:
    """Tensors of each dtype, in torch's names, by the headers of safetensors files."""
    counts: dict[str, int] = {}
    for path in files:
        try:
            with safe_open(path, framework="np") as file:
                for name in file.keys():  # noqa: SIM118 (it is no mapping)
                    dtype = _HEADER_DTYPES.get(file.get_slice(name).get_dtype())
                    if dtype is not None:
                        counts[dtype] = counts.get(dtype, 0) + 1
        except (OSError, SafetensorError) as error:
            raise UnknownShapeError(f"{path.name} cannot be read: {error}") from error
    return counts
