"""Codes: a block's quantized weights with scales, zero points and the folds they assume, and their file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from quantflow.errors import StoreError
from quantflow.model.safetensors_file import SafetensorsFile, TensorSpec, write_safetensors
from quantflow.quantize.grid import Grid, encode

# Weights that are encoded together, so that what it takes besides is small.
ENCODED_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class LinearCodes:
    """One linear layer's weight W in codes: W[o, i] = (q[o, i] - zero_points[o, g(i)]) * scales[o, g(i)].

    The group g(i) of an input is i // group_size, or what `group_index` says.

    Attributes:
        q: uint8 `[out, in]`, each below 2 ** bits.
        scales: float16 `[out, in / group_size]`.
        zero_points: uint8 `[out, in / group_size]`, each below 2 ** bits.
        bits: Width of a code.
        group_size: Input channels that share a scale and a zero point.
        group_index: int32 `[in]`, the group of every input; None where groups are consecutive inputs.

    Raises:
        ValueError: If dtypes or shapes are not these.
    """

    q: Tensor
    scales: Tensor
    zero_points: Tensor
    bits: int
    group_size: int
    group_index: Tensor | None = None

    def __post_init__(self) -> None:
        """Check dtypes and shapes."""
        rows, columns = self.q.shape
        groups = (rows, columns // self.group_size)
        if columns % self.group_size or self.scales.shape != groups or self.zero_points.shape != groups:
            raise ValueError(
                f"q {tuple(self.q.shape)}, scales {tuple(self.scales.shape)} and zero_points "
                f"{tuple(self.zero_points.shape)} do not fit groups of {self.group_size}"
            )
        dtypes = (self.q.dtype, self.scales.dtype, self.zero_points.dtype)
        if dtypes != (torch.uint8, torch.float16, torch.uint8):
            raise ValueError(f"q, scales and zero_points are {dtypes}")
        index = self.group_index
        if index is not None and (index.dtype != torch.int32 or index.shape != (columns,)):
            raise ValueError(f"group_index is {index.dtype} {tuple(index.shape)} for {columns} inputs")


@dataclass(frozen=True)
class BlockCodes:
    """The codes of one decoder block.

    Attributes:
        linears: Full module name, e.g. `model.layers.0.self_attn.q_proj` → its codes.
        folds: Full name of the parameter that is divided by a scale, e.g.
            `model.layers.0.input_layernorm.weight` → the scale, float32, one entry per channel of a norm or
            row of a linear. If it is a quantized linear's weight, e.g. `model.layers.0.mlp.up_proj.weight`,
            that linear's codes contain the division already.
    """

    linears: Mapping[str, LinearCodes]
    folds: Mapping[str, Tensor]


def dequantize(codes: LinearCodes) -> Tensor:
    """The weight that the codes stand for, float32 `[out, in]`."""
    rows, columns = codes.q.shape
    if codes.group_index is not None:
        index = codes.group_index.long()
        weight = codes.q.to(torch.float32).sub_(codes.zero_points[:, index])
        return weight.mul_(codes.scales[:, index])
    weight = codes.q.to(torch.float32).reshape(rows, -1, codes.group_size)
    weight.sub_(codes.zero_points.to(torch.float32).unsqueeze(-1))
    weight.mul_(codes.scales.to(torch.float32).unsqueeze(-1))
    return weight.reshape(rows, columns)


def grid_codes(weight: Tensor, grid: Grid) -> LinearCodes:
    """The nearest codes of a weight `[out, in]` on a grid of consecutive groups, in main memory."""
    q = torch.empty(weight.shape, dtype=torch.uint8)
    group_size = weight.shape[1] // grid.scales.shape[1]
    rows = max(1, ENCODED_AT_ONCE // weight.shape[1])
    for begin in range(0, len(weight), rows):
        part = slice(begin, begin + rows)
        own = Grid(grid.scales[part], grid.zero_points[part], grid.bits)
        q[part] = encode(weight[part].reshape(*own.scales.shape, group_size), own).reshape(q[part].shape)
    return LinearCodes(
        q=q,
        scales=grid.scales.half().cpu(),
        zero_points=grid.zero_points.to(torch.uint8).cpu(),
        bits=grid.bits,
        group_size=group_size,
    )


def save_block(path: Path, block: BlockCodes) -> None:
    """Write a block's codes: equal codes give equal bytes, and the file appears complete or not at all."""
    tensors = {f"fold:{name}": scale.to(torch.float32) for name, scale in block.folds.items()}
    grids = {}
    for name, codes in block.linears.items():
        tensors[f"q:{name}"] = codes.q
        tensors[f"scales:{name}"] = codes.scales
        tensors[f"zero_points:{name}"] = codes.zero_points
        if codes.group_index is not None:
            tensors[f"group_index:{name}"] = codes.group_index
        grids[name] = {"bits": codes.bits, "group_size": codes.group_size}
    specs = [TensorSpec(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()]
    write_safetensors(path, specs, tensors.items(), {"grids": json.dumps(grids, sort_keys=True)})


def block_file(stage_output: Path, scheme_id: str, index: int) -> Path:
    """Where a stage keeps the codes of a block in one scheme."""
    return stage_output / "codes" / scheme_id / f"block-{index:05d}.safetensors"


def quantized_linears(path: Path) -> frozenset[str]:
    """Full names of the linears whose codes a file of `save_block` holds, without reading the codes.

    Raises:
        StoreError: If the file is missing or is not such a file.
    """
    return frozenset(_grids(SafetensorsFile(path, error=StoreError)))


def load_block(path: Path) -> BlockCodes:
    """Read what `save_block` wrote.

    Raises:
        StoreError: If the file is missing or is not such a file.
    """
    file = SafetensorsFile(path, error=StoreError)
    linears = {name: _linear(file, name, grid) for name, grid in _grids(file).items()}
    prefix = "fold:"
    folds = {name.removeprefix(prefix): file.read(name) for name in file.specs if name.startswith(prefix)}
    return BlockCodes(linears=linears, folds=folds)


def load_linear(path: Path, name: str) -> LinearCodes:
    """The codes of one linear in a file of `save_block`.

    Raises:
        StoreError: If the file is missing, is not such a file, or has none for this linear.
    """
    file = SafetensorsFile(path, error=StoreError)
    grids = _grids(file)
    if name not in grids:
        raise StoreError(f"has no codes of {name}", where=str(path))
    return _linear(file, name, grids[name])


def _linear(file: SafetensorsFile, name: str, grid: Mapping[str, int]) -> LinearCodes:
    return LinearCodes(
        q=file.read(f"q:{name}"),
        scales=file.read(f"scales:{name}"),
        zero_points=file.read(f"zero_points:{name}"),
        bits=grid["bits"],
        group_size=grid["group_size"],
        group_index=file.read(f"group_index:{name}") if f"group_index:{name}" in file.specs else None,
    )


def _grids(file: SafetensorsFile) -> dict[str, dict[str, int]]:
    if "grids" not in file.metadata:
        raise StoreError("does not hold the codes of a block", where=str(file.path))
    grids: dict[str, dict[str, int]] = json.loads(file.metadata["grids"])
    return grids
