"""The stage graph of a recipe: which stages there are, with which parameters, fed by which others."""

from quantflow.data.params import DataParams
from quantflow.formats.params import AssembleParams
from quantflow.gate.params import GateParams
from quantflow.measure.params import BaselineParams, MeasureParams
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.stage import Stage
from quantflow.quantize.params import CheckParams, QuantizeParams
from quantflow.recipe.schema import Artifact, Recipe
from quantflow.source.params import SourceParams


def build_graph(recipe: Recipe, machine: Machine, digests: DigestCache) -> tuple[Stage, ...]:
    """Stages in an order in which every input comes before the stages that need it.

    Args:
        recipe: A loaded recipe.
        machine: Where it will run.
        digests: Hashes of the files that the recipe names.

    Raises:
        RecipeError: The source or the data that the recipe names are not there.
    """
    device, batch_tokens = machine.device, recipe.runtime.batch_tokens
    shared = (
        _source(recipe, digests),
        Stage(
            name="check",
            function="quantflow.quantize.check:run",
            params=CheckParams(group_sizes={a.name: a.group_size for a in recipe.artifacts}),
            inputs={"source": "source"},
        ),
        _data(recipe, digests),
        Stage(
            name="baseline",
            function="quantflow.measure.baseline:run",
            params=BaselineParams(device=device, batch_tokens=batch_tokens),
            inputs={"source": "source", "data": "data"},
            on_device=True,
        ),
    )
    own = [stage for artifact in recipe.artifacts for stage in _artifact(recipe, artifact, device)]
    return (*shared, *own)
