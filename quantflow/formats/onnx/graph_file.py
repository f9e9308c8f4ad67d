"""An ONNX graph on disk: nodes in one file, tensors in another, read and written one tensor at a time.

Format: https://github.com/onnx/onnx/blob/main/docs/ExternalData.md. A model of any size passes through in the
memory of its largest tensor.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from quantflow.errors import ArtifactError
from quantflow.formats.onnx.params import DATA_FILE, GRAPH_FILE

ALIGNMENT = 4096  # a page, so that runtimes can map every tensor
SMALLEST_EXTERNAL = 1024  # bytes; what is smaller stays in the graph, where runtimes fold constants
COPIED_AT_ONCE = 16 << 20
PACKED_BITS: Mapping[int, int] = {
    onnx.TensorProto.UINT4: 4,
    onnx.TensorProto.INT4: 4,
    onnx.TensorProto.FLOAT4E2M1: 4,
    onnx.TensorProto.UINT2: 2,
    onnx.TensorProto.INT2: 2,
}
"""Types of which a byte holds several values (onnx.proto, TensorProto.raw_data)."""
DAMAGED = "It is damaged or was not copied completely: make it again."

Source = Callable[[], NDArray[Any]]
"""Gives a tensor's values when they are written."""


class GraphFile:
    """A graph whose tensors are not in memory.

    Args:
        path: The .onnx file.

    Attributes:
        path: The same.
        model: The graph as ONNX's own message, its large tensors outside.
        initializers: Its constant tensors by name, as they are on disk.

    Raises:
        ArtifactError: It is missing, is no ONNX graph, or its tensors' file is missing or cut short, or a
            tensor is none.
    """

    def __init__(self, path: Path) -> None:
        """Read the graph, and check where its tensors are said to lie."""
        self.path = path
        try:
            self.model = onnx.load(str(path), load_external_data=False)
        except (OSError, DecodeError) as cause:
            raise ArtifactError("is no ONNX graph that can be read", where=str(path), hint=DAMAGED) from cause
        # Copies: the model's own are changed while a new graph is made of it.
        self.initializers = {tensor.name: _copy(tensor) for tensor in self.model.graph.initializer}
        for tensor in (*self.initializers.values(), *_elsewhere(self.model.graph)):
            self._check(tensor)

    @property
    def opset(self) -> int:
        """Version of ONNX's own operators that it uses."""
        return max((o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx")), default=0)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a constant."""
        return tuple(self.initializers[name].dims)

    def dtype(self, name: str) -> "np.dtype[Any]":
        """Type of a constant's values."""
        dtype: np.dtype[Any] = onnx.helper.tensor_dtype_to_np_dtype(self.initializers[name].data_type)
        return dtype

    def size(self, name: str) -> int:
        """Size of a constant's data."""
        tensor = self.initializers[name]
        place = _place(tensor)
        return place[2] if place is not None else _stored_bytes(tensor)

    @property
    def weight_bytes(self) -> int:
        """Of all constants' data; what several have in common once."""
        places = {_place(tensor) or name: self.size(name) for name, tensor in self.initializers.items()}
        return sum(places.values())

    def read(self, name: str) -> NDArray[Any]:
        """A constant's values, in its own shape and type."""
        tensor = self.initializers[name]
        place = _place(tensor)
        if place is None:
            values: NDArray[Any] = onnx.numpy_helper.to_array(tensor)
            return values
        dtype = self.dtype(name)
        file, offset, length = place
        count = length // dtype.itemsize
        return np.fromfile(self.path.parent / file, dtype, count, offset=offset).reshape(tuple(tensor.dims))

    def chunks(self, name: str) -> Iterator[bytes]:
        """A constant's bytes, a piece at a time."""
        tensor = self.initializers[name]
        place = _place(tensor)
        if place is None:
            yield _inline(tensor)
            return
        file, offset, length = place
        with (self.path.parent / file).open("rb") as opened:
            opened.seek(offset)
            while length:
                piece = opened.read(min(length, COPIED_AT_ONCE))
                if not piece:
                    raise ArtifactError("ends within a tensor", where=str(self.path.parent / file))
                length -= len(piece)
                yield piece

    def _check(self, tensor: onnx.TensorProto) -> None:
        try:
            place, wanted = _place(tensor), _stored_bytes(tensor)
            held = len(tensor.raw_data) or wanted if place is None else place[2]
            if place is None and not tensor.raw_data:
                onnx.numpy_helper.to_array(tensor)
        except (KeyError, TypeError, ValueError) as cause:
            raise ArtifactError(
                f"what it says of {tensor.name} is no tensor: its type, shape, place and size do not fit",
                where=str(self.path),
                hint=DAMAGED,
            ) from cause
        where = self.path if place is None else self.path.parent / place[0]
        if place is not None:
            self._check_place(tensor.name, place)
        if wanted != held:
            raise ArtifactError(
                f"{tensor.name} has {held} bytes, which do not fit its shape", where=str(where), hint=DAMAGED
            )

    def _check_place(self, name: str, place: tuple[str, int, int]) -> None:
        file, offset, length = place
        path = self.path.parent / file
        if Path(file).name != file or file == "..":
            raise ArtifactError(f"its tensors lie in {file!r}, outside its folder", where=str(self.path))
        if not _is_file(path):
            raise ArtifactError(
                f"its tensors are missing: there is no {file}", where=str(self.path), hint=DAMAGED
            )
        if offset + length > path.stat().st_size:
            raise ArtifactError(
                f"is cut short: {name} is to end at byte {offset + length}, and the file ends at "
                f"{path.stat().st_size}",
                where=str(path),
                hint=DAMAGED,
            )


def write_graph(base: GraphFile, changed: Mapping[str, Source], folder: Path) -> None:
    """Write a graph that was made by changing another one.

    Args:
        base: The other one, its `model` changed: its initializers are what is written.
        changed: Constants whose values are not those of the base any more, or new → their values, written
            once where several have the same source; all others are copied.
        folder: Where model.onnx and model.onnx.data are written.

    Raises:
        ArtifactError: The base's tensors cannot be read.
        OSError: The disk does not take it.
    """
    data = folder / DATA_FILE
    written: dict[Source, tuple[int, int]] = {}
    with data.open("xb") as file:
        for tensor in base.model.graph.initializer:
            source = changed.get(tensor.name)
            if source is not None and source in written:
                _point(tensor, *written[source])
                continue
            values = source() if source is not None else None
            size = values.nbytes if values is not None else base.size(tensor.name)
            if size < SMALLEST_EXTERNAL:
                raw = _raw(values) if values is not None else b"".join(base.chunks(tensor.name))
                _clear(tensor)
                tensor.raw_data = raw
                continue
            file.write(b"\0" * (-file.tell() % ALIGNMENT))
            begin = file.tell()
            if values is not None:
                file.write(np.ascontiguousarray(values).view(np.uint8).data)
            else:
                for piece in base.chunks(tensor.name):
                    file.write(piece)
            _point(tensor, begin, size)
            if source is not None:
                written[source] = (begin, size)
        file.flush()
        os.fsync(file.fileno())
    (folder / GRAPH_FILE).write_bytes(base.model.SerializeToString(deterministic=True))


def planned_bytes(base: GraphFile, changed: Mapping[str, Source]) -> int:
    """What the constants will take that `write_graph` writes.

    Args:
        base: As there.
        changed: As there.
    """
    sources: set[Source] = set()
    total = 0
    for tensor in base.model.graph.initializer:
        width = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        size, source = width * int(np.prod(tensor.dims, dtype=np.int64)), changed.get(tensor.name)
        if source is not None and size >= SMALLEST_EXTERNAL:
            if source in sources:
                continue
            sources.add(source)
        total += size
    return total


def declare(name: str, dtype: int, shape: tuple[int, ...]) -> onnx.TensorProto:
    """A constant whose values come when it is written."""
    return onnx.TensorProto(name=name, data_type=dtype, dims=shape)


def _point(tensor: onnx.TensorProto, begin: int, size: int) -> None:
    """Let a constant lie in the file of tensors."""
    _clear(tensor)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", DATA_FILE), ("offset", begin), ("length", size)):
        tensor.external_data.add(key=key, value=str(value))


def _copy(tensor: onnx.TensorProto) -> onnx.TensorProto:
    copied = onnx.TensorProto()
    copied.CopyFrom(tensor)
    return copied


def _clear(tensor: onnx.TensorProto) -> None:
    for field in ("external_data", "data_location", "raw_data", "float_data", "int32_data", "int64_data"):
        tensor.ClearField(field)


def _raw(values: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(values).tobytes()


def _inline(tensor: onnx.TensorProto) -> bytes:
    return bytes(tensor.raw_data) or _raw(onnx.numpy_helper.to_array(tensor))


def _elsewhere(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Tensors that are no constants of the graph: in attributes, in graphs within it, sparse ones."""
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        yield from (tensor for tensor in (attribute.t, *attribute.tensors) if tensor.external_data)
        for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from (*inner.initializer, *_elsewhere(inner))


def _place(tensor: onnx.TensorProto) -> tuple[str, int, int] | None:
    """File, offset and length of a constant that lies outside the graph."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return None
    entries = {entry.key: entry.value for entry in tensor.external_data}
    offset = int(entries.get("offset", 0))
    if offset < 0:
        raise ValueError("an offset below 0")
    return entries["location"], offset, int(entries.get("length", _stored_bytes(tensor)))


def _stored_bytes(tensor: onnx.TensorProto) -> int:
    """What a constant takes by its type and shape; values of less than a byte are packed.

    Raises:
        KeyError: There is no such type.
        ValueError: There is no such shape.
    """
    if any(size < 0 for size in tensor.dims):
        raise ValueError("a size below 0")
    whole = 8 * int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    bits = PACKED_BITS.get(tensor.data_type, whole)
    return math.ceil(math.prod(map(int, tensor.dims)) * bits / 8)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that no file can have
        return False
