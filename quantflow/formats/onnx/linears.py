"""The linear layers of a graph: which constant holds the weight of which unit."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantflow.errors import QuantizationError
from quantflow.formats.onnx.graph_file import GraphFile
from quantflow.model.config import load_config
from quantflow.model.families import Family
from quantflow.model.units import HEAD, units_of
from quantflow.model.weights import SafetensorsReader

# As the GenAI builder names them: `model.layers.0.attn.qkv_proj.MatMul.weight`.
_BLOCK_WEIGHT = re.compile(r"model\.layers\.(\d+)\.(?:attn|self_attn|mlp)\.(\w+_proj)\.MatMul\.weight")
_WEIGHT = ".MatMul.weight"
EMBEDDINGS = (
    "model.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "transformer.wte.weight",
    "transformer.word_embeddings.weight",
)
_FUSED_QKV, _FUSED_GATE_UP = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")


@dataclass(frozen=True)
class Part:
    """Some outputs of one of the model's linears.

    Attributes:
        linear: Its full name, e.g. `model.layers.0.self_attn.q_proj`.
        rows: First row of its weight and the one after the last; None for all.
    """

    linear: str
    rows: tuple[int, int] | None = None


@dataclass(frozen=True)
class GraphLinear:
    """One product of a graph with a constant weight `[in, out]`.

    Attributes:
        weight: Name of the constant.
        unit: The unit it belongs to, e.g. `model.layers.0.qkv` or `lm_head`.
        parts: What its outputs are of the model's linears, in order.
        inputs: Input channels.
        outputs: Output channels.
    """

    weight: str
    unit: str
    parts: tuple[Part, ...]
    inputs: int
    outputs: int

    @property
    def stem(self) -> str:
        """What the names of all its constants begin with, e.g. `model.layers.0.attn.o_proj.MatMul`."""
        return self.weight.removesuffix(".weight")

    @property
    def elements(self) -> int:
        """Weights that it holds."""
        return self.inputs * self.outputs


def graph_linears(graph: GraphFile, family: Family, checkpoint: Path) -> tuple[GraphLinear, ...]:
    """The linear layers of a graph, in the order of the graph.

    Their weights are held against the checkpoint's: first, middle and last row of every part.

    Args:
        graph: The graph, its weights in float.
        family: The model's family.
        checkpoint: The folder it was made of.

    Raises:
        QuantizationError: A layer of the model is not in the graph, or holds other weights there.
    """
    reader = SafetensorsReader(checkpoint)
    users = {name for node in graph.model.graph.node if node.op_type == "MatMul" for name in node.input[1:]}
    config: Any = load_config(checkpoint)
    units = units_of(family, config.num_hidden_layers)
    unit_of = {linear: unit for unit, linears in units.items() for linear in linears} | {HEAD: HEAD}
    found = []
    for name in graph.initializers:
        unit, parts = _parts(name, family, unit_of, config)
        if parts and name in users:
            inputs, outputs = graph.shape(name)
            found.append(GraphLinear(name, unit, parts, inputs, outputs))
    _check_complete(found, family, reader, graph.path)
    for linear in found:
        _check_weights(linear, graph, reader)
    return tuple(found)


def source_rows(part: Part, reader: SafetensorsReader) -> tuple[str, range]:
    """The tensor that a part's weight lies in, and its rows there."""
    name = weight_name(part.linear, reader)
    first, after = part.rows or (0, reader.shape(name)[0])
    return name, range(first, after)


def weight_name(linear: str, reader: SafetensorsReader) -> str:
    """The tensor with a linear's weight: the head's is the embedding where both are tied."""
    name = f"{linear}.weight"
    if linear == HEAD and name not in reader.names():
        return next((embedding for embedding in EMBEDDINGS if embedding in reader.names()), name)
    return name


def part_weight(part: Part, reader: SafetensorsReader) -> Tensor:
    """The weight of a part as the checkpoint has it, float32 `[out, in]`."""
    name, rows = source_rows(part, reader)
    return reader.read(name)[rows.start : rows.stop].float()


def _parts(
    name: str, family: Family, unit_of: Mapping[str, str], config: Any
) -> tuple[str, tuple[Part, ...]]:
    """Unit and parts of a constant by its name; no parts where it is no linear's weight."""
    linear = name.removesuffix(_WEIGHT)
    if linear != name and linear in unit_of:
        return unit_of[linear], (Part(linear),)
    match = _BLOCK_WEIGHT.fullmatch(name)
    if match is None:
        return "", ()
    prefix, called = family.block_name(int(match[1])), match[2]
    linears = {linear.rpartition(".")[2]: linear for linear in family.linears}
    if called in linears:
        parts: tuple[Part, ...] = (Part(f"{prefix}.{linears[called]}"),)
    elif called == "qkv_proj" and all(short in linears for short in _FUSED_QKV):
        parts = tuple(Part(f"{prefix}.{linears[short]}") for short in _FUSED_QKV)
    elif called in _FUSED_QKV and "qkv_proj" in linears:
        parts = (Part(f"{prefix}.{linears['qkv_proj']}", _fused_slices(config)[called]),)
    elif called in _FUSED_GATE_UP and "gate_up_proj" in linears:
        parts = (Part(f"{prefix}.{linears['gate_up_proj']}", _fused_slices(config)[called]),)
    else:
        return "", ()
    return unit_of[parts[0].linear], parts


def _fused_slices(config: Any) -> dict[str, tuple[int, int]]:
    """Where the layers that a builder takes apart lie within fused ones."""
    heads = config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    query, key = heads * head, (getattr(config, "num_key_value_heads", None) or heads) * head
    width = config.intermediate_size
    return {
        "q_proj": (0, query),
        "k_proj": (query, query + key),
        "v_proj": (query + key, query + 2 * key),
        "gate_proj": (0, width),
        "up_proj": (width, 2 * width),
    }


def _check_complete(found: list[GraphLinear], family: Family, reader: SafetensorsReader, where: Path) -> None:
    rows: dict[str, int] = {}
    for linear in found:
        for part in linear.parts:
            rows[part.linear] = rows.get(part.linear, 0) + len(source_rows(part, reader)[1])
    blocks = 1 + max((int(m[1]) for name in reader.names() if (m := _in_block(name, family))), default=0)
    expected = [f"{family.block_name(index)}.{name}" for index in range(blocks) for name in family.linears]
    for name in (*expected, HEAD):
        outputs = reader.shape(weight_name(name, reader))[0]
        if rows.get(name, 0) != outputs:
            raise QuantizationError(
                f"the graph has {rows.get(name, 0)} of its {outputs} outputs in products with a constant",
                where=f"{where}: {name}",
                hint="What made the graph made it in a way that QuantFlow does not know; its version may be "
                "another than the one this was tried with.",
            )


def _in_block(name: str, family: Family) -> re.Match[str] | None:
    return re.match(re.escape(family.blocks) + r"\.(\d+)\.", name)


def _check_weights(linear: GraphLinear, graph: GraphFile, reader: SafetensorsReader) -> None:
    stored = graph.read(linear.weight)
    column = 0
    for part in linear.parts:
        name, rows = source_rows(part, reader)
        looked = sorted({rows[0], rows[len(rows) // 2], rows[-1]})
        expected = reader.rows(name, looked).float().numpy()
        got = stored[:, [column + row - rows[0] for row in looked]].T
        if not _same(got, expected):
            raise QuantizationError(
                f"the graph's {linear.weight} does not hold its weight", where=f"{graph.path}: {part.linear}"
            )
        column += len(rows)
    if column != linear.outputs:
        raise QuantizationError(f"has {linear.outputs} outputs, its parts have {column}", where=linear.weight)


def _same(got: NDArray[Any], expected: NDArray[np.float32]) -> bool:
    if got.dtype == np.float32:
        return bool(np.array_equal(got, expected))
    return bool(np.array_equal(got, torch.from_numpy(expected).half().numpy()))
