"""Pickled weights, where the recipe allows them: read by torch's restricted loader, stored as safetensors."""

import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quantflow.errors import SourceError
from quantflow.model.config import load_config
from quantflow.model.safetensors_file import DTYPE_NAMES, TensorSpec, write_safetensors
from quantflow.model.weights import INDEX_FILE, SINGLE_FILE
from quantflow.pipeline.events import Reporter
from quantflow.source.consistency import EMBEDDING, HEAD
from quantflow.source.folder import read_config
from quantflow.source.identify import PICKLE_INDEX, PICKLE_SINGLE, checkpoint_files

_SHARD = "model-{number:05d}-of-{count:05d}.safetensors"


def convert_pickled(folder: Path, target: Path, reporter: Reporter) -> None:
    """Write a folder of pickled weights as a checkpoint of safetensors, one file at a time.

    Args:
        folder: Folder with `pytorch_model*.bin`, config.json and tokenizer.
        target: Folder to make.
        reporter: Receives progress, and the event that says so.

    Raises:
        RecipeError: The model cannot be a baseline.
        SourceError: A file is missing or damaged, or holds anything but tensors.
    """
    read_config(folder)
    tied = bool(load_config(folder).tie_word_embeddings)
    files = _pickle_files(folder)
    target.mkdir()
    for path in checkpoint_files(folder):
        shutil.copyfile(path, target / path.name)
    weight_map: dict[str, str] = {}
    with reporter.track("Converting pickled weights, files", len(files)) as advance:
        for number, path in enumerate(files, start=1):
            tensors = _without_tied_head(_load(path), tied)
            shard = SINGLE_FILE if len(files) == 1 else _SHARD.format(number=number, count=len(files))
            repeated = sorted(tensors.keys() & weight_map.keys())
            if repeated:
                raise SourceError(f"holds {repeated[0]}, which another file has, too", where=str(path))
            weight_map |= dict.fromkeys(tensors, shard)
            _write(target / shard, tensors, path)
            advance(1)
    if len(files) > 1:
        index = json.dumps({"metadata": {}, "weight_map": dict(sorted(weight_map.items()))}, indent=2)
        (target / INDEX_FILE).write_text(index + "\n", encoding="utf-8")
    reporter.event(
        "weights-unpickled",
        f"The weights are pickled in {len(files)} files; as the recipe allows, they were read with torch's "
        "restricted loader and stored as safetensors.",
        files=[path.name for path in files],
    )


def _pickle_files(folder: Path) -> list[Path]:
    if not (folder / PICKLE_INDEX).is_file():
        return [folder / PICKLE_SINGLE]
    index = folder / PICKLE_INDEX
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        outside = [name for name in names if Path(name).name != name or not name.endswith(".bin")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError("is no index of pickled shards", where=str(index)) from error
    if outside:
        raise SourceError(f"names a shard that cannot be one: {outside[0]}", where=str(index))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing or not names:
        raise SourceError(
            f"{len(missing)} of {len(names)} shards are missing"
            + (f", such as {missing[0]}" if missing else ""),
            where=str(folder),
            hint="Get the missing files from where the others are from.",
        )
    return [folder / name for name in names]


def _load(path: Path) -> dict[str, Tensor]:
    in_zip = zipfile.is_zipfile(path)
    if in_zip:
        _refuse_packed(path)
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=in_zip)
    except Exception as error:  # what a damaged or hostile pickle ends in is anybody's guess
        raise SourceError(
            "torch's restricted loader refuses it: it is damaged or holds more than tensors",
            where=str(path),
            hint="Take a safetensors version of the model.",
        ) from error
    if not isinstance(state, Mapping):
        raise SourceError("holds no mapping of names to tensors", where=str(path))
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or tensor.dtype not in DTYPE_NAMES:
            raise SourceError(f"holds {name!r}, which is no plain tensor", where=str(path))
    return dict(state)


def _refuse_packed(path: Path) -> None:
    """Torch stores tensors as they are: a file that unpacks to more than it is was made to fill a memory."""
    try:
        with zipfile.ZipFile(path) as archive:
            packed = [info for info in archive.infolist() if info.compress_type != zipfile.ZIP_STORED]
    except zipfile.BadZipFile as error:
        raise SourceError(f"is damaged: {error}", where=str(path)) from error
    if packed:
        raise SourceError(
            f"holds packed data ({packed[0].filename}), which torch never writes", where=str(path)
        )


def _without_tied_head(tensors: dict[str, Tensor], tied: bool) -> dict[str, Tensor]:
    """Leave out a head that is the embedding once more, as safetensors files of tied models do."""
    if tied and {EMBEDDING, HEAD} <= tensors.keys() and torch.equal(tensors[EMBEDDING], tensors[HEAD]):
        return {name: tensor for name, tensor in tensors.items() if name != HEAD}
    return tensors


def _write(path: Path, tensors: Mapping[str, Tensor], origin: Path) -> None:
    specs = [TensorSpec(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in sorted(tensors.items())]
    if not specs:
        raise SourceError("holds no tensors", where=str(origin))
    write_safetensors(path, specs, tensors.items(), {"format": "pt"})
