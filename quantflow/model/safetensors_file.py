"""One safetensors file: a header checked before a byte is allocated, tensors read and written one at a time.

Format: https://github.com/huggingface/safetensors#format. Tensors are read with seek and readinto into fresh
memory rather than mapped, so that a block's weights are gone from the process when the block is freed.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

import torch

from quantflow.errors import QuantFlowError, SourceError

DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
DTYPE_NAMES: Mapping[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}

MAX_HEADER_BYTES = 100_000_000
"""The format's reference implementation refuses longer headers; a length beyond it is a damaged file."""

CHUNK_BYTES = 64 << 20
"""What is read at once of a tensor that is looked through and not kept: few calls, and little memory."""

LENGTH_BYTES = 8
"""The file begins with the header's length as a little-endian 64-bit integer; data is aligned to as much."""


@dataclass(frozen=True)
class TensorSpec:
    """What a header says of a tensor, or is to say.

    Attributes:
        name: Full name, e.g. `model.layers.0.self_attn.q_proj.weight`.
        dtype: Its dtype as stored.
        shape: Its shape as stored.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Size of the tensor's data."""
        elements = 1
        for size in self.shape:
            elements *= size
        return elements * self.dtype.itemsize


class SafetensorsFile:
    """A safetensors file whose header has been read and found sound.

    Args:
        path: The file.
        error: The class raised for what is wrong with it, by what the file means to the user.

    Attributes:
        specs: Every tensor in the file by name.
        metadata: The header's free strings.

    Raises:
        QuantFlowError: Of class `error`, if the file is missing or cut short, or its header contradicts the
            format, the file's size or itself.
    """

    def __init__(self, path: Path, error: type[QuantFlowError] = SourceError) -> None:
        """Read and check the header."""
        self.path = path
        self._error = error
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                header, self._data_start = _read_header(file, size)
        except OSError as cause:
            raise error(f"cannot be read: {cause.strerror}", where=str(path)) from cause
        except ValueError as cause:  # an index can name what is no file name at all
            raise error(f"cannot be read: {cause}", where=ascii(str(path))) from cause
        except _Damaged as cause:
            raise error(
                str(cause), where=str(path), hint="The file is damaged or incomplete: get it again."
            ) from cause
        metadata = header.pop("__metadata__", {})
        self.metadata: Mapping[str, str] = metadata if isinstance(metadata, dict) else {}
        try:
            self._entries = _check_entries(header, size - self._data_start)
        except _Damaged as cause:
            raise error(
                cause.args[0],
                where=f"{path}: {cause.tensor}" if cause.tensor else str(path),
                hint="The file is damaged or of a kind QuantFlow does not read.",
            ) from cause
        self.specs: Mapping[str, TensorSpec] = {name: spec for name, (spec, _) in self._entries.items()}

    def read(self, name: str) -> torch.Tensor:
        """Read one tensor, as stored, into memory of its own.

        Raises:
            QuantFlowError: Of the file's error class, if it has no such tensor or cannot be read whole.
        """
        spec, begin = self._entry(name)
        data = self._bytes(name, begin, spec.bytes)
        return data.view(spec.dtype).reshape(spec.shape)

    def read_rows(self, name: str, begin: int, end: int) -> torch.Tensor:
        """Read the rows from … to of one tensor, as stored, into memory of their own.

        Raises:
            QuantFlowError: Of the file's error class, if it has no such tensor or cannot be read whole.
        """
        spec, start = self._entry(name)
        row = spec.bytes // spec.shape[0]
        data = self._bytes(name, start + begin * row, (end - begin) * row)
        return data.view(spec.dtype).reshape(-1, *spec.shape[1:])

    def chunks(self, name: str) -> Iterator[torch.Tensor]:
        """A tensor's elements in order, as stored, in flat pieces of at most `CHUNK_BYTES`.

        Raises:
            QuantFlowError: Of the file's error class, if it has no such tensor or cannot be read whole.
        """
        spec, begin = self._entry(name)
        for at in range(0, spec.bytes, CHUNK_BYTES):
            yield self._bytes(name, begin + at, min(CHUNK_BYTES, spec.bytes - at)).view(spec.dtype)

    def _entry(self, name: str) -> tuple[TensorSpec, int]:
        if name not in self._entries:
            raise self._error(f"has no tensor {name}", where=str(self.path))
        return self._entries[name]

    def _bytes(self, name: str, begin: int, count: int) -> torch.Tensor:
        data = torch.empty(count, dtype=torch.uint8)
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(self._data_start + begin)
                _read_exactly(file, data.numpy().data)
        except (OSError, _Damaged) as cause:
            why = cause.strerror if isinstance(cause, OSError) else cause
            raise self._error(f"cannot be read: {why}", where=f"{self.path}: {name}") from cause
        return data


def write_safetensors(
    path: Path,
    specs: Sequence[TensorSpec],
    tensors: Iterable[tuple[str, torch.Tensor]],
    metadata: Mapping[str, str],
) -> None:
    """Write a safetensors file without holding more than one tensor, complete or not at all.

    Bytes depend on names, values and metadata alone, not on the order of `specs` or `tensors`.

    Args:
        path: Where the file is to appear.
        specs: All tensors the file is to have.
        tensors: Each of them once, in any order, on any device.
        metadata: Strings for the header.

    Raises:
        ValueError: If `tensors` does not match `specs`.
    """
    # Widest dtype first keeps every tensor aligned without padding, as the reference implementation does it.
    ordered = sorted(specs, key=lambda spec: (-spec.dtype.itemsize, spec.name))
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    places: dict[str, tuple[TensorSpec, int]] = {}
    end = 0
    for spec in ordered:
        begin, end = end, end + spec.bytes
        header[spec.name] = {
            "dtype": DTYPE_NAMES[spec.dtype],
            "shape": list(spec.shape),
            "data_offsets": [begin, end],
        }
        places[spec.name] = (spec, begin)
    encoded = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    encoded += b" " * (-len(encoded) % LENGTH_BYTES)
    start = LENGTH_BYTES + len(encoded)

    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(len(encoded).to_bytes(LENGTH_BYTES, "little"))
            file.write(encoded)
            file.truncate(start + end)
            for name, tensor in tensors:
                spec, begin = places.pop(name)
                if tensor.dtype != spec.dtype or tuple(tensor.shape) != spec.shape:
                    raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, planned as {spec}")
                file.seek(start + begin)
                file.write(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
            if places:
                raise ValueError(f"never given: {', '.join(sorted(places))}")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


class _Damaged(Exception):
    """The file contradicts the format; `tensor` names the entry it concerns, if one."""

    def __init__(self, message: str, tensor: str = "") -> None:
        super().__init__(message)
        self.tensor = tensor


def _read_exactly(file: FileIO, buffer: memoryview) -> None:
    filled = 0
    while filled < len(buffer):
        count = file.readinto(buffer[filled:])
        if not count:
            raise _Damaged("the file ends early")
        filled += count


def _read_header(file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    if size < LENGTH_BYTES:
        raise _Damaged("is no safetensors file: shorter than its own first field")
    file.seek(0)
    length = int.from_bytes(file.read(LENGTH_BYTES), "little")
    if length > MAX_HEADER_BYTES or length > size - LENGTH_BYTES:
        raise _Damaged(f"says its header is {length} bytes long, in a file of {size} bytes")
    try:
        header = json.loads(file.read(length), object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as cause:
        raise _Damaged("has a header that is not JSON") from cause
    if not isinstance(header, dict):
        raise _Damaged("has a header that is not a JSON object")
    return header, LENGTH_BYTES + length


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _Damaged("has a header that names something twice")
    return result


def _check_entries(header: Mapping[str, Any], data_bytes: int) -> dict[str, tuple[TensorSpec, int]]:
    entries: dict[str, tuple[TensorSpec, int]] = {}
    for name, entry in header.items():
        spec, begin, end = _check_entry(name, entry)
        if end > data_bytes:
            raise _Damaged(f"ends at byte {end} of {data_bytes} bytes of data: the file is cut short", name)
        entries[name] = (spec, begin)
    expected = 0
    for name, (spec, begin) in sorted(entries.items(), key=lambda item: (item[1][1], item[1][0].bytes)):
        if begin != expected:
            kind = "overlaps the tensor before it" if begin < expected else "leaves a hole before it"
            raise _Damaged(kind, name)
        expected = begin + spec.bytes
    if expected != data_bytes:
        raise _Damaged(f"describes {expected} bytes of data and holds {data_bytes}")
    return entries


def _check_entry(name: str, entry: Any) -> tuple[TensorSpec, int, int]:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _Damaged("is not described by dtype, shape and data_offsets", name)
    if entry["dtype"] not in DTYPES:
        raise _Damaged(f"has dtype {entry['dtype']!r}; readable are {', '.join(DTYPES)}", name)
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _Damaged("has a shape or data_offsets that are no sizes", name)
    spec = TensorSpec(name, DTYPES[entry["dtype"]], tuple(shape))
    if offsets[1] - offsets[0] != spec.bytes:
        raise _Damaged(
            f"has shape {shape} of {entry['dtype']}, {spec.bytes} bytes, in {offsets[1] - offsets[0]} bytes",
            name,
        )
    return spec, offsets[0], offsets[1]


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)
