"""What a graph of somebody else's has to be to be run here: its operators, inputs and outputs."""

import json
from typing import Any

import onnx

from quantflow.errors import ArtifactError
from quantflow.formats.onnx.graph_file import GraphFile
from quantflow.formats.onnx.params import GENAI_CONFIG, Provider

KNOWN_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Operators that ONNX Runtime has by itself."""
PAST, PRESENT = "past_key_values", "present"
NEEDED = ("input_ids", "attention_mask")
OPTIONAL = ("position_ids",)
LOGITS = "logits"
SHARED_CACHE = "GroupQueryAttention"
"""Writes what is new into the room behind what is in the cache, which is how graphs are run here."""
CACHE_DIMS = 4
"""Dimensions of a part of the cache: batch, heads, tokens, size of a head."""
EXPORT_HINT = "Graphs of the ONNX Runtime GenAI builder have these names; export the model with it."
MOST_NAMED = 5


def require_known_operators(graph: GraphFile) -> None:
    """Refuse operators that come from a library of their own, which would have to be loaded: code of others.

    Raises:
        ArtifactError: There are some.
    """
    own = {(function.domain, function.name) for function in graph.model.functions}
    nodes = [*graph.model.graph.node, *(node for f in graph.model.functions for node in f.node)]
    foreign = sorted(
        {
            f"{node.domain}.{node.op_type}"
            for node in nodes
            if node.domain not in KNOWN_DOMAINS and (node.domain, node.op_type) not in own
        }
    )
    if foreign:
        raise ArtifactError(
            f"it needs operators of a library of its own: {_some(foreign)}",
            where=str(graph.path),
            hint="Libraries are code of others and are not loaded here. Export the model without them.",
        )


def require_decoder(graph: GraphFile, provider: Provider) -> None:
    """Refuse a graph that cannot be run as a decoder with a key-value cache.

    Args:
        graph: The graph.
        provider: Where it is to be run.

    Raises:
        ArtifactError: An input or output is missing, unknown or of another type; or its cache is kept in
            another way.
    """
    inputs = {given.name: given for given in graph.model.graph.input if given.name not in graph.initializers}
    outputs = {made.name: made for made in graph.model.graph.output}
    past = [name for name in inputs if name.startswith(PAST)]
    needed = [*NEEDED, *([] if past else [f"{PAST}.0.key"])]
    missing = [f"input {name}" for name in needed if name not in inputs]
    wanted = [LOGITS, *(name.replace(PAST, PRESENT) for name in past)]
    missing += [f"output {name}" for name in wanted if name not in outputs]
    if missing:
        raise ArtifactError(
            f"the graph has no {_some(missing)}",
            where=str(graph.path),
            hint=f"It has inputs {_some([*inputs])} and outputs {_some([*outputs])}. {EXPORT_HINT}",
        )
    unknown = sorted({*inputs} - {*NEEDED, *OPTIONAL, *past})
    if unknown:
        raise ArtifactError(
            f"the graph has inputs that nothing is known of: {_some(unknown)}",
            where=str(graph.path),
            hint=EXPORT_HINT,
        )
    other = [n for n in (*NEEDED, *OPTIONAL) if n in inputs and _type(inputs[n]) != onnx.TensorProto.INT64]
    if other:
        raise ArtifactError(f"{_some(other)} are not int64", where=str(graph.path), hint=EXPORT_HINT)
    if _dims(outputs[LOGITS])[-1:] == [0] or not _dims(outputs[LOGITS]):
        raise ArtifactError("the graph does not say how large its vocabulary is", where=str(graph.path))
    _require_cache(graph, inputs, past, provider)


def _require_cache(graph: GraphFile, inputs: dict[str, Any], past: list[str], provider: Provider) -> None:
    held = {name for node in graph.model.graph.node if node.op_type == SHARED_CACHE for name in node.input}
    apart = [name for name in past if name not in held]
    if apart:
        raise ArtifactError(
            f"the graph keeps its cache in another way than by {SHARED_CACHE}: {_some(apart)}",
            where=str(graph.path),
            hint="Graphs are run here with a cache that is written in place. Export the model with the ONNX "
            "Runtime GenAI builder.",
        )
    odd = [name for name in past if len(_dims(inputs[name])) != CACHE_DIMS or not _dims(inputs[name])[1]]
    if odd:
        raise ArtifactError(
            f"the graph does not say how many heads its cache has: {_some(odd)}",
            where=str(graph.path),
            hint=EXPORT_HINT,
        )
    if any(_dims(inputs[name])[-1:] == [0] for name in past) and not _says_head_size(graph):
        raise ArtifactError(
            "nothing says how large an attention head is",
            where=str(graph.path),
            hint=f"Put the {GENAI_CONFIG} beside it that it was made with, or export it with fixed sizes.",
        )
    if provider == "cpu" and any(_type(inputs[name]) == onnx.TensorProto.FLOAT16 for name in past):
        raise ArtifactError(
            "the graph computes in float16, which ONNX Runtime has no attention for on processors",
            where=str(graph.path),
            hint="Judge it on a machine with an NVIDIA GPU, or export it for processors.",
        )


def _says_head_size(graph: GraphFile) -> bool:
    try:
        config = json.loads((graph.path.parent / GENAI_CONFIG).read_text(encoding="utf-8"))
        return int(config["model"]["decoder"]["head_size"]) > 0
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _type(value: Any) -> int:
    return int(value.type.tensor_type.elem_type)


def _dims(value: Any) -> list[int]:
    """Sizes of a value; 0 where one is open."""
    return [int(dim.dim_value) for dim in value.type.tensor_type.shape.dim]


def _some(names: list[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (
        f" and {len(names) - MOST_NAMED} more" * (len(names) > MOST_NAMED)
    )
