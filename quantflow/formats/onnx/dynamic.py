"""ONNX Runtime's own dynamic quantization, for comparison: articles recommend it."""

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from quantflow.formats.onnx.linears import GraphLinear
from quantflow.formats.onnx.params import DATA_FILE, GRAPH_FILE


def quantize_dynamically(base: Path, kept: Sequence[GraphLinear], folder: Path, work: Path) -> None:
    """Quantize all products but some: weights INT8 per channel, inputs by their range at every call.

    `quantize_dynamic` writes beside its input, which in the store is read-only, and onnx takes a file with
    several hard links, such as stored ones are, for an attack: it is given a copy.

    Args:
        base: Folder of the lossless graph.
        kept: Linears that stay as they are.
        folder: Where model.onnx and model.onnx.data are written.
        work: An empty folder.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    for name in (GRAPH_FILE, DATA_FILE):
        shutil.copyfile(base / name, work / name)
    weights = {linear.weight for linear in kept}
    with _without_advice():
        quantize_dynamic(
            work / GRAPH_FILE,
            folder / GRAPH_FILE,
            op_types_to_quantize=["MatMul"],  # by default embeddings, too
            per_channel=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=_users(work / GRAPH_FILE, weights),
            use_external_data_format=True,
            extra_options={"MatMulConstBOnly": True},
        )


@contextmanager
def _without_advice() -> Iterator[None]:
    """Keep its advice to optimise graphs beforehand, given through the root logger, off the terminal."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(before)


def _users(graph: Path, weights: set[str]) -> list[str]:
    import onnx

    model = onnx.load(str(graph), load_external_data=False)
    return [node.name for node in model.graph.node if weights.intersection(node.input)]
