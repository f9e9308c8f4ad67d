"""The runtimes that a recipe measures baseline and artifacts in, graphs aside."""

from dataclasses import dataclass

from quantflow.measure.params import ServedParams
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.serving import served_params
from quantflow.recipe.schema import Recipe
from quantflow.runtime.catalogue import RUNTIMES, TORCH, Runtime

KL_MARK = "-kl"
"""In the names of stages that measure KL where the recipe's runtime gives a lower bound only."""


@dataclass(frozen=True)
class MeasuredIn:
    """A runtime that baseline and artifacts are measured in.

    Attributes:
        runtime: The runtime.
        params: Parameters of its stages; None for torch's own.
        mark: What the names of its stages have besides: nothing for the recipe's runtime.
    """

    runtime: Runtime
    params: ServedParams | None = None
    mark: str = ""


def measured_in(recipe: Recipe, machine: Machine) -> tuple[MeasuredIn, ...]:
    """The recipe's runtime and, where KL is to be measured in another one, that."""
    if recipe.runtime.name == "torch":
        return (MeasuredIn(TORCH),)
    served = MeasuredIn(RUNTIMES[recipe.runtime.name], served_params(recipe, machine))
    return (served,) if recipe.gate.kl.runtime is None else (served, MeasuredIn(TORCH, mark=KL_MARK))
