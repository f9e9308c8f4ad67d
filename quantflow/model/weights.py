"""Where a decoder's weights come from: one tensor at a time, by full name."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import torch

from quantflow.errors import QuantFlowError, SourceError
from quantflow.model.safetensors_file import SafetensorsFile, TensorSpec

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


class WeightReader(Protocol):
    """Gives a model's tensors by the names the model has for them."""

    def names(self) -> frozenset[str]:
        """Names of all tensors that can be read."""

    def read(self, name: str) -> torch.Tensor:
        """One tensor in memory of its own, in whatever dtype it comes.

        Raises:
            QuantFlowError: If there is no such tensor or it cannot be read; its message names it.
        """

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, without reading it.

        Raises:
            QuantFlowError: If there is no such tensor.
        """

    def rows(self, name: str, rows: Sequence[int]) -> torch.Tensor:
        """Some rows of a tensor of two dimensions that is stored as it is, e.g. an embedding.

        Raises:
            QuantFlowError: If there is no such tensor or it cannot be read; its message names it.
        """


TABLE_BYTES = 64 << 20
"""Bytes of an embedding or a head that are read at once: with 128,000 tokens it is larger than any block."""

GET_INDEX = "Index and shards do not belong together: get all files of one revision."


class SafetensorsReader:
    """The tensors of a Hugging Face folder: one model.safetensors, or shards and their index.

    Args:
        folder: The folder.
        error: The class raised for what is wrong with it, by what the folder means to the user.

    Raises:
        QuantFlowError: Of class `error`, if the folder has no weights, a shard or tensor that the index names
            is not there, or a file is damaged.
    """

    def __init__(self, folder: Path, error: type[QuantFlowError] = SourceError) -> None:
        """Read and check the index and every header."""
        self.folder = folder
        self._error = error
        self._files: dict[str, SafetensorsFile] = {}
        self._unindexed: frozenset[str] = frozenset()
        if (folder / INDEX_FILE).is_file():
            self._open_shards(folder / INDEX_FILE)
        elif (folder / SINGLE_FILE).is_file():
            file = SafetensorsFile(folder / SINGLE_FILE, error)
            self._files = dict.fromkeys(file.specs, file)
        else:
            raise error(f"has neither {SINGLE_FILE} nor {INDEX_FILE}", where=str(folder))

    def _open_shards(self, index: Path) -> None:
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            shards = {name: Path(shard).name for name, shard in weight_map.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
            raise self._error(
                "is no index of safetensors shards", where=str(index), hint=GET_INDEX
            ) from cause
        present = {path.name for path in self.folder.iterdir()}
        opened: dict[str, SafetensorsFile] = {}
        for name, shard in sorted(shards.items()):
            if shard != weight_map[name]:
                raise self._error(
                    f"names a shard outside its folder: {weight_map[name]}",
                    where=str(index),
                    hint="Shards lie beside their index. Do not use a model that says otherwise.",
                )
            if shard not in present:
                raise self._error(
                    f"the shard {shard!a} is missing, which the index names",
                    where=str(self.folder),
                    hint="Get the missing files from where the others are from.",
                )
            if shard not in opened:
                opened[shard] = SafetensorsFile(self.folder / shard, self._error)
            if name not in opened[shard].specs:
                raise self._error(
                    f"says that {name} is in {shard}, which has no such tensor",
                    where=str(index),
                    hint=GET_INDEX,
                )
            self._files[name] = opened[shard]
        stored = {name for file in opened.values() for name in file.specs}
        self._unindexed = frozenset(stored - shards.keys())

    @property
    def shards(self) -> frozenset[str]:
        """Names of the files that hold the tensors."""
        return frozenset(file.path.name for file in self._files.values())

    @property
    def unindexed(self) -> frozenset[str]:
        """Tensors that lie in a shard without the index naming them; they are not read."""
        return self._unindexed

    def names(self) -> frozenset[str]:
        """Names of all tensors in the folder."""
        return frozenset(self._files)

    def spec(self, name: str) -> TensorSpec:
        """A tensor's dtype and shape, without reading it.

        Raises:
            QuantFlowError: Of the reader's error class, if there is no such tensor.
        """
        return self._file_of(name).specs[name]

    def read(self, name: str) -> torch.Tensor:
        """One tensor, as stored, in memory of its own.

        Raises:
            QuantFlowError: Of the reader's error class, if there is no such tensor or it cannot be read.
        """
        return self._file_of(name).read(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, without reading it.

        Raises:
            QuantFlowError: Of the reader's error class, if there is no such tensor.
        """
        return self.spec(name).shape

    def rows(self, name: str, rows: Sequence[int]) -> torch.Tensor:
        """Some rows of a tensor of two dimensions, as stored, in the order asked for.

        Raises:
            QuantFlowError: Of the reader's error class, if there is no such tensor or it cannot be read.
        """
        file = self._file_of(name)
        return torch.cat([file.read_rows(name, begin, end) for begin, end in _runs(rows)])

    def chunks(self, name: str) -> Iterator[torch.Tensor]:
        """A tensor's elements in order, as stored, in flat pieces that take little memory.

        Raises:
            QuantFlowError: Of the reader's error class, if there is no such tensor or it cannot be read.
        """
        return self._file_of(name).chunks(name)

    def _file_of(self, name: str) -> SafetensorsFile:
        if name not in self._files:
            raise self._error(
                f"the tensor {name} is missing",
                where=str(self.folder),
                hint="The weights are incomplete or belong to another architecture than config.json says.",
            )
        return self._files[name]


def read_table(
    reader: SafetensorsReader, name: str, device: torch.device, dtype: torch.dtype
) -> torch.Tensor:
    """An embedding or a head in another type, without it being in memory in both types at once.

    Args:
        reader: Where it is stored.
        name: Its name there.
        device: Where it goes.
        dtype: What it becomes.

    Raises:
        QuantFlowError: Of the reader's error class, if there is no such tensor or it cannot be read.
    """
    shape, spec = reader.shape(name), reader.spec(name)
    step = TABLE_BYTES * shape[0] // max(1, spec.bytes) if len(shape) == 2 else 0
    if step == 0 or step >= shape[0] or spec.dtype == dtype:
        return reader.read(name).to(device, dtype)
    table = torch.empty(shape, dtype=dtype, device=device)
    for begin in range(0, shape[0], step):
        end = min(begin + step, shape[0])
        table[begin:end] = reader.rows(name, range(begin, end)).to(device, dtype)
    return table


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Numbers in their order as ranges, those that follow one another together."""
    begin = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield numbers[begin], numbers[at - 1] + 1
            begin = at


class CountingReader(SafetensorsReader):
    """A reader that counts what it reads.

    Attributes:
        bytes_read: Bytes of tensors read so far.
    """

    bytes_read = 0

    def read(self, name: str) -> torch.Tensor:
        """As a `SafetensorsReader`."""
        tensor = super().read(name)
        self.bytes_read += tensor.nbytes
        return tensor

    def rows(self, name: str, rows: Sequence[int]) -> torch.Tensor:
        """As a `SafetensorsReader`."""
        tensor = super().rows(name, rows)
        self.bytes_read += tensor.nbytes
        return tensor
