"""INT8 linears on disk: those of a block, or of what is outside the blocks, and the folds they assume."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quantflow.errors import StoreError
from quantflow.model.safetensors_file import SafetensorsFile, TensorSpec, write_safetensors
from quantflow.quantize.codes import block_file
from quantflow.quantize.int8 import InputRange, Int8Linear

_FACTS = "int8"
_FOLD = "fold:"


@dataclass(frozen=True)
class Int8Block:
    """The INT8 linears of one decoder block, or those outside the blocks.

    Attributes:
        linears: Full module name, e.g. `model.layers.0.self_attn.q_proj` or `lm_head` → its values, which
            stand for the weight after all folds: its columns times the scale that its input was divided by,
            its rows over the scale that is folded into it.
        folds: Full name of the parameter that is divided by a scale (SmoothQuant), e.g.
            `model.layers.0.input_layernorm.weight` or `model.norm.weight` → the scale, float32, one entry per
            channel of a norm or row of a linear. A linear that stays in floating point is divided when it is
            written, and so is a bias beside the parameter.
    """

    linears: Mapping[str, Int8Linear] = field(default_factory=dict)
    folds: Mapping[str, Tensor] = field(default_factory=dict)


def int8_file(stage_output: Path, scheme_id: str, index: int | None) -> Path:
    """Where a stage keeps the INT8 values of a block, or of what is outside the blocks where that is None."""
    if index is None:
        return block_file(stage_output, scheme_id, 0).with_name("head.safetensors")
    return block_file(stage_output, scheme_id, index)


def read_int8_block(stage_output: Path, scheme_id: str, index: int | None) -> Int8Block:
    """What a stage that quantizes to INT8 wrote of a block, or of the head where `index` is None.

    Raises:
        StoreError: The file is missing or holds something else.
    """
    return load_int8_block(int8_file(stage_output, scheme_id, index))


def save_int8_block(path: Path, block: Int8Block) -> None:
    """Write INT8 values: equal values give equal bytes, and the file appears complete or not at all."""
    tensors = {f"{_FOLD}{name}": scale.to(torch.float32) for name, scale in block.folds.items()}
    facts: dict[str, Any] = {}
    for name, linear in block.linears.items():
        tensors[f"q:{name}"] = linear.q
        tensors[f"scales:{name}"] = linear.scales
        if len(linear.floating_channels):
            tensors[f"floating_channels:{name}"] = linear.floating_channels
            tensors[f"floating_weight:{name}"] = linear.floating_weight
        ranges = {"input": linear.input, "remainder": linear.remainder}
        facts[name] = {part: None if how is None else asdict(how) for part, how in ranges.items()}
    specs = [TensorSpec(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()]
    write_safetensors(path, specs, tensors.items(), {_FACTS: json.dumps(facts, sort_keys=True)})


def load_int8_block(path: Path) -> Int8Block:
    """Read what `save_int8_block` wrote.

    Raises:
        StoreError: The file is missing or holds something else.
    """
    file = SafetensorsFile(path, error=StoreError)
    facts = _facts(file)
    folds = {name.removeprefix(_FOLD): file.read(name) for name in file.specs if name.startswith(_FOLD)}
    return Int8Block({name: _linear(file, name, own) for name, own in facts.items()}, folds)


def load_int8_linear(path: Path, name: str) -> Int8Linear:
    """The values of one linear in a file of `save_int8_block`.

    Raises:
        StoreError: The file is missing, holds something else, or has none for this linear.
    """
    file = SafetensorsFile(path, error=StoreError)
    facts = _facts(file)
    if name not in facts:
        raise StoreError(f"has no INT8 values of {name}", where=str(path))
    return _linear(file, name, facts[name])


def load_int8_folds(path: Path) -> dict[str, Tensor]:
    """The folds of a file of `save_int8_block` alone: parameter → the scale it is divided by.

    Raises:
        StoreError: The file is missing or damaged.
    """
    file = SafetensorsFile(path, error=StoreError)
    return {name.removeprefix(_FOLD): file.read(name) for name in file.specs if name.startswith(_FOLD)}


def int8_linears(path: Path) -> frozenset[str]:
    """Full names of the linears in a file of `save_int8_block`, without reading their values.

    Raises:
        StoreError: The file is missing or holds something else.
    """
    return frozenset(_facts(SafetensorsFile(path, error=StoreError)))


def _facts(file: SafetensorsFile) -> dict[str, Any]:
    if _FACTS not in file.metadata:
        raise StoreError("does not hold INT8 values", where=str(file.path))
    facts: dict[str, Any] = json.loads(file.metadata[_FACTS])
    return facts


def _linear(file: SafetensorsFile, name: str, own: Mapping[str, Any]) -> Int8Linear:
    ranges = {part: None if how is None else InputRange(**how) for part, how in own.items()}
    q = file.read(f"q:{name}")
    apart = f"floating_channels:{name}" in file.specs
    return Int8Linear(
        q=q,
        scales=file.read(f"scales:{name}"),
        input=ranges["input"],
        remainder=ranges["remainder"],
        floating_channels=file.read(f"floating_channels:{name}") if apart else torch.empty(0).long(),
        floating_weight=file.read(f"floating_weight:{name}") if apart else torch.empty(len(q), 0),
    )
