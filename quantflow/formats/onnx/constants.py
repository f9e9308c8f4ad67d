"""New constants of a graph that is changed: declared in it, and where their values come from."""

from typing import Any

import torch
from numpy.typing import NDArray

from quantflow.formats.onnx.graph_file import GraphFile, Source, declare


class Constants:
    """The constants that a graph gets.

    Args:
        graph: The graph; its `model` gets the declarations.

    Attributes:
        graph: The same.
        sources: Name → where its values come from when the graph is written.
    """

    def __init__(self, graph: GraphFile) -> None:
        self.graph = graph
        self.sources: dict[str, Source] = {}

    def add(self, name: str, dtype: int, shape: tuple[int, ...], source: Source) -> str:
        """Declare a constant; its name."""
        self.graph.model.graph.initializer.append(declare(name, dtype, shape))
        self.sources[name] = source
        return name


def array(tensor: torch.Tensor) -> NDArray[Any]:
    """A tensor as numpy has it, its elements in order."""
    values: NDArray[Any] = tensor.contiguous().numpy()
    return values
