"""How large an artifact is to be, from what it will be made of: nothing is written."""

from collections.abc import Mapping
from pathlib import Path

from quantflow.formats.making import Ingredients, entries_of
from quantflow.formats.onnx.params import OnnxAssembleParams
from quantflow.formats.params import AssembleParams
from quantflow.model.units import HEAD


def tensor_bytes(
    params: AssembleParams | OnnxAssembleParams, inputs: Mapping[str, Path], kept: frozenset[str]
) -> int:
    """Bytes of all tensors of an artifact with some units kept.

    Args:
        params: How it is written.
        inputs: Finished outputs of `source` and `codes`; of `base`, for a graph.
        kept: Units that stay as they are.
    """
    if isinstance(params, OnnxAssembleParams):
        from quantflow.formats.onnx.assemble import planned_size

        made_of = {"source": inputs["source"], "base": inputs["base"], "values": inputs["codes"]}
        return planned_size(params.model_copy(update={"keep": tuple(sorted(kept))}), made_of)
    return sum(entry.bytes for entry in entries_of(params, Ingredients.of(inputs), kept - {HEAD}))
