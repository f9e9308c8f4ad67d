"""What a GGUF file says of itself: metadata and tensor table, read and checked without its tensors.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from quantflow.errors import SourceError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MOST_DIMENSIONS = 4
"""As in ggml."""
MOST_ENTRIES = 1_000_000
"""Tensors or metadata values in a file, at most: a hundred times what the largest models have."""
LONGEST_STRING = 16 << 20
"""Bytes of a string in the metadata; chat templates, the longest, have some thousands."""
PLAIN_TYPES: Mapping[str, str] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""GGUF's tensor types that hold plain numbers, and torch's names for them; all others are quantized."""

SPECIAL_TOKENS = ("bos", "eos", "unknown", "padding")
"""Roles of tokens that a file's metadata names by their id."""

# Numbers of metadata value types in the file → struct format; strings and arrays are read by hand.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

Scalar = int | float | bool | str


@dataclass(frozen=True)
class GgufTensor:
    """One row of the tensor table.

    Attributes:
        type: Name of its storage type, e.g. `Q4_1`.
        shape: Its sizes as GGUF has them, the innermost first.
        begin: Where its data begins in the file, bytes.
        bytes: Size of its data.
    """

    type: str
    shape: tuple[int, ...]
    begin: int
    bytes: int

    @property
    def parameters(self) -> int:
        """Number of its elements."""
        return prod(self.shape)


@dataclass(frozen=True)
class GgufHeader:
    """Metadata and tensor table of a GGUF file.

    Attributes:
        architecture: `general.architecture`, e.g. `llama`.
        metadata: Scalars and strings by key; of an array, its length.
        tensors: Tensor table by GGUF's own names.
    """

    architecture: str
    metadata: Mapping[str, Scalar]
    tensors: Mapping[str, GgufTensor]

    @property
    def is_quantized(self) -> bool:
        """Whether any tensor is stored in a quantized type."""
        return any(tensor.type not in PLAIN_TYPES for tensor in self.tensors.values())

    def token_id(self, role: str) -> int | None:
        """Id of a special token, one of `SPECIAL_TOKENS`, where the file names one."""
        return self.size(f"tokenizer.ggml.{role}_token_id")

    def size(self, key: str) -> int | None:
        """A metadata value that is a whole number and not negative; None where there is no such."""
        value = self.metadata.get(key)
        return value if type(value) is int and value >= 0 else None


def read_header(path: Path) -> GgufHeader:
    """Read a GGUF file's header.

    Raises:
        SourceError: It is no GGUF file, of another version, cut short or damaged.
    """
    try:
        with path.open("rb") as file:
            return parse_header(file, os.fstat(file.fileno()).st_size, path)
    except OSError as error:
        raise SourceError(f"the GGUF file cannot be read: {error.strerror}", where=str(path)) from error


def parse_header(file: BinaryIO, size: int, path: Path) -> GgufHeader:
    """Read the header of an open GGUF file, which need not be one of the file system.

    Args:
        file: The file, at its beginning.
        size: Its size, bytes.
        path: What it is called in messages.

    Raises:
        SourceError: It is no GGUF file, of another version, cut short or damaged.
    """
    return _Cursor(file, size, path).header()


class _Cursor:
    """Reads little-endian values one after the other and never past the end of the file."""

    def __init__(self, file: BinaryIO, size: int, path: Path) -> None:
        self._file = file
        self._path = path
        self._size = size

    def header(self) -> GgufHeader:
        if self._size < len(MAGIC) or self._bytes(len(MAGIC)) != MAGIC:
            raise SourceError(
                "this is not a GGUF file: it does not begin with GGUF",
                where=str(self._path),
                hint="A download may have saved an error page or a Git LFS pointer in its place.",
            )
        version = int(self._scalar("I"))
        if version not in VERSIONS:
            raise SourceError(
                f"GGUF version {version} is not supported, only {' and '.join(map(str, VERSIONS))}",
                where=str(self._path),
                hint="Convert the model again with a current llama.cpp, little-endian.",
            )
        tensor_count, metadata_count = int(self._scalar("Q")), int(self._scalar("Q"))
        # Each takes twelve bytes at least: more than fit the file are a lie, and are not waited for.
        if max(tensor_count, metadata_count) > min(MOST_ENTRIES, self._size // 12):
            raise self._truncated(f"and claims {tensor_count} tensors and {metadata_count} metadata values")
        metadata: dict[str, Scalar] = {}
        for _ in range(metadata_count):
            key = self._string()
            metadata[key] = self._value(int(self._scalar("I")))
        table = [self._tensor_row() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(alignment) is not int or alignment <= 0:
            raise self._damaged(f"an alignment of {alignment!r} bytes")
        start = -(-self._file.tell() // alignment) * alignment
        tensors = {name: self._tensor(name, shape, type_, start + at) for name, shape, type_, at in table}
        if len(tensors) != tensor_count:
            raise self._damaged("several tensors of one name")
        architecture = metadata.get("general.architecture")
        if not isinstance(architecture, str):
            raise self._damaged("no general.architecture in its metadata")
        return GgufHeader(architecture, metadata, tensors)

    def _tensor_row(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        dimensions = int(self._scalar("I"))
        if dimensions > MOST_DIMENSIONS:
            raise self._damaged(f"tensor {name} of {dimensions} dimensions")
        shape = tuple(int(self._scalar("Q")) for _ in range(dimensions))
        return name, shape, int(self._scalar("I")), int(self._scalar("Q"))

    def _tensor(self, name: str, shape: tuple[int, ...], type_number: int, begin: int) -> GgufTensor:
        try:
            type_ = GGMLQuantizationType(type_number)
        except ValueError as error:
            raise SourceError(
                f"tensor type {type_number} is not known to the installed gguf package",
                where=f"{self._path}: {name}",
                hint="Take a file in another type, best F16 or BF16.",
            ) from error
        block_size, block_bytes = GGML_QUANT_SIZES[type_]
        if shape and shape[0] % block_size:
            raise self._damaged(f"tensor {name} with rows of {shape[0]}, no multiple of {block_size}")
        size = prod(shape) // block_size * block_bytes
        if begin + size > self._size:
            raise self._truncated(f"tensor {name} ends at byte {begin + size}")
        return GgufTensor(type_.name, shape, begin, size)

    def _value(self, type_number: int) -> Scalar:
        if type_number in _SCALARS:
            return self._scalar(_SCALARS[type_number])
        if type_number == _STRING:
            return self._string()
        if type_number == _ARRAY:
            return self._skip_array()
        raise self._damaged(f"a metadata value of the unknown type {type_number}")

    def _skip_array(self) -> int:
        """Go past an array; vocabularies and merges are left to the tokenizer's conversion."""
        element, count = int(self._scalar("I")), int(self._scalar("Q"))
        if element in _SCALARS:
            self._skip(count * struct.calcsize(_SCALARS[element]))
        elif element == _STRING:
            for _ in range(count):
                self._skip(int(self._scalar("Q")))
        else:
            raise self._damaged(f"an array of the unknown type {element}")
        return count

    def _scalar(self, format_: str) -> int | float | bool:
        value: int | float | bool = struct.unpack(f"<{format_}", self._bytes(struct.calcsize(format_)))[0]
        return value

    def _string(self) -> str:
        length = int(self._scalar("Q"))
        if LONGEST_STRING < length <= self._size:
            raise self._damaged(f"a string of {length} bytes")
        return self._bytes(length).decode("utf-8", errors="replace")

    def _bytes(self, count: int) -> bytes:
        if self._file.tell() + count > self._size:
            raise self._truncated("its header goes on beyond that")
        return self._file.read(count)

    def _skip(self, count: int) -> None:
        if self._file.tell() + count > self._size:
            raise self._truncated("its header goes on beyond that")
        self._file.seek(count, os.SEEK_CUR)

    def _truncated(self, detail: str) -> SourceError:
        return SourceError(
            f"the GGUF file is cut short: it has {self._size} bytes, {detail}",
            where=str(self._path),
            hint="Fetch or convert it again.",
        )

    def _damaged(self, what: str) -> SourceError:
        return SourceError(f"the GGUF file is damaged: {what}", where=str(self._path), hint="Fetch it again.")
