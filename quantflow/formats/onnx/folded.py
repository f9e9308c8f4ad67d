"""Scales that quantized linears assume in what stays in floating point: norms, biases and kept linears."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantflow.errors import QuantizationError
from quantflow.formats.onnx.graph_file import GraphFile, Source
from quantflow.formats.onnx.linears import GraphLinear, part_weight, weight_name
from quantflow.model.families import Family
from quantflow.model.weights import SafetensorsReader, WeightReader

LAST_NORM = ".final_norm_layernorm.weight"


@dataclass(frozen=True)
class Folded:
    """Tensors of the source that are not as they were, because a scale is folded into them.

    Attributes:
        names: Their full names: weights of norms, weights and biases of linears.
        read: Gives one by its name, float32, as a model of the source's family would hold it.
        source: The lossless tensors.
        norm_offset: What norms add to their weight; the graph's constants contain it.
    """

    names: frozenset[str]
    read: Callable[[str], Tensor]
    source: SafetensorsReader
    norm_offset: float


def folded_by_artifact(artifact: WeightReader, source: SafetensorsReader, family: Family) -> Folded:
    """What an artifact of codes folded, found by holding it against its source.

    Args:
        artifact: Its tensors.
        source: The lossless ones.
        family: Says where scales may have gone.
    """
    quantized = getattr(artifact, "quantized", frozenset[str]())
    names = set()
    for name in source.names() & artifact.names():
        owner, _, leaf = name.rpartition(".")
        inside = owner.startswith(f"{family.blocks}.")
        is_target = inside and any(owner.endswith(f".{fold.into}") for fold in family.folds)
        is_code = owner in quantized and leaf == "weight"
        if (
            is_target
            and not is_code
            and not torch.equal(artifact.read(name).float(), source.read(name).float())
        ):
            names.add(name)
    return Folded(frozenset(names), lambda name: artifact.read(name).float(), source, family.norm_offset)


def fold_into(
    graph: GraphFile, linears: tuple[GraphLinear, ...], planned: Collection[str], folded: Folded
) -> dict[str, Source]:
    """The constants of a graph that folds change → their values.

    Codes contain what is folded into their linears; of these only biases are changed.

    Args:
        graph: The lossless graph.
        linears: Its linear layers.
        planned: Weights that are replaced by codes.
        folded: What is folded.

    Raises:
        QuantizationError: A fold is into what the graph does not have as a constant of its own.
    """
    changed: dict[str, Source] = {}
    reached: set[str] = set()
    for linear in linears:
        weights = {weight_name(part.linear, folded.source) for part in linear.parts}
        biases = {f"{part.linear}.bias" for part in linear.parts}
        if weights & folded.names and linear.weight not in planned:
            changed[linear.weight] = partial(_weight, graph, linear, folded)
        if biases & folded.names:
            name = linear.weight.replace(".MatMul.weight", ".Add.bias")
            _require(graph, name)
            changed[name] = partial(_bias, graph, name, linear, folded)
        reached |= weights | biases
    for name in folded.names - reached:
        constant = _norm_constant(graph, name)
        _require(graph, constant)
        changed[constant] = partial(_norm, graph, constant, name, folded)
    return changed


def _norm_constant(graph: GraphFile, name: str) -> str:
    """The builder's name for a norm's weight: its own, but for the last norm."""
    if name in graph.initializers:
        return name
    return next((own for own in graph.initializers if own.endswith(LAST_NORM)), name)


def _require(graph: GraphFile, name: str) -> None:
    if name not in graph.initializers:
        raise QuantizationError(
            "a scale is folded into it, and the graph has no such constant", where=f"{graph.path}: {name}"
        )


def _weight(graph: GraphFile, linear: GraphLinear, folded: Folded) -> NDArray[Any]:
    parts = []
    for part in linear.parts:
        name = weight_name(part.linear, folded.source)
        if name in folded.names:
            whole = folded.read(name)
            parts.append(whole[slice(*part.rows)] if part.rows else whole)
        else:
            parts.append(part_weight(part, folded.source))
    return _stored(graph, linear.weight, torch.cat(parts).T)


def _bias(graph: GraphFile, name: str, linear: GraphLinear, folded: Folded) -> NDArray[Any]:
    parts = []
    for part in linear.parts:
        bias = f"{part.linear}.bias"
        whole = folded.read(bias) if bias in folded.names else folded.source.read(bias).float()
        parts.append(whole[slice(*part.rows)] if part.rows else whole)
    return _stored(graph, name, torch.cat(parts))


def _norm(graph: GraphFile, constant: str, name: str, folded: Folded) -> NDArray[Any]:
    return _stored(graph, constant, folded.read(name) + folded.norm_offset)


def _stored(graph: GraphFile, name: str, values: Tensor) -> NDArray[Any]:
    """Values in the type that the graph has for a constant."""
    before: np.dtype[Any] = graph.dtype(name)
    after: NDArray[Any] = np.ascontiguousarray(values.numpy().astype(before))
    return after
