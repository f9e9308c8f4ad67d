"""The stages that measure the artifact in service, once for all that could replace it."""

from pathlib import Path

from quantflow.measure.params import MeasureParams, ServedParams
from quantflow.pipeline.asked import (
    AGAINST,
    AGAINST_MEASURED,
    AGAINST_TASKS,
    BASELINE_TASKS,
    tasks_params,
)
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.importing import import_stage
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.stage import Stage
from quantflow.recipe.schema import Recipe
from quantflow.runtime.catalogue import TORCH, Runtime


def against_stages(
    recipe: Recipe,
    machine: Machine,
    digests: DigestCache,
    runtime: Runtime,
    params: MeasureParams | ServedParams,
) -> tuple[Stage, ...]:
    """Import, measure and run what `gate.against` names; none where it names nothing.

    Args:
        recipe: The recipe.
        machine: Where it runs.
        digests: Hashes of the files that the recipe names.
        runtime: What artifacts are measured in.
        params: Parameters of measuring in it.

    Raises:
        RecipeError: There is no artifact.
        StoreError: A file of it cannot be read.
    """
    if recipe.gate.against is None:
        return ()
    stages = [
        import_stage(recipe, "gate.against", recipe.gate.against, AGAINST, digests, stage=AGAINST),
        Stage(
            name=AGAINST_MEASURED,
            function=runtime.measure,
            params=params,
            inputs={"source": "source", "data": "data", "baseline": "baseline", "assemble": AGAINST},
            on_device=True,
            artifact=AGAINST,
            resumable=runtime is TORCH,
        ),
    ]
    if recipe.gate.tasks:
        asked = tasks_params(recipe, machine)
        stages.append(
            Stage(
                name=AGAINST_TASKS,
                function="quantflow.tasks.stage:artifact",
                params=asked,
                inputs={"assemble": AGAINST, "baseline": BASELINE_TASKS},
                on_device=True,
                external={path: digests.digest(Path(path)) for path in asked.files.values()},
                artifact=AGAINST,
                resumable=True,
            )
        )
    return tuple(stages)
