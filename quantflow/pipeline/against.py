"""The stages that measure the artifact in service, once for all that could replace it."""

from collections.abc import Mapping

from quantflow.errors import RecipeError
from quantflow.measure.onnx_params import OnnxMeasureParams
from quantflow.measure.params import MeasureParams, ServedParams
from quantflow.pipeline.asked import AGAINST, AGAINST_MEASURED, AGAINST_TASKS, Asking, tasks_stage
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.importing import import_stage, runs_as_graph
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.stage import Stage
from quantflow.recipe.artifacts import ImportArtifact
from quantflow.recipe.schema import Recipe


def against_stages(
    recipe: Recipe,
    machine: Machine,
    digests: DigestCache,
    function: str,
    params: MeasureParams | ServedParams | OnnxMeasureParams,
    inputs: Mapping[str, str],
    asking: Asking,
    *,
    resumable: bool,
) -> tuple[Stage, ...]:
    """Import, measure and run what `gate.against` names; none where it names nothing.

    Args:
        recipe: The recipe.
        machine: Where it runs.
        digests: Hashes of the files that the recipe names.
        function: Measures artifacts in the runtime that it is run in.
        params: Parameters of measuring in it.
        inputs: Inputs of measuring in it, beside the artifact: role → stage.
        asking: What artifacts are asked there.
        resumable: Whether measuring goes on after an interruption.

    Raises:
        RecipeError: There is no artifact.
        StoreError: A file of it cannot be read.
    """
    if recipe.gate.against is None:
        return ()
    stages = [
        import_stage(recipe, "gate.against", recipe.gate.against, AGAINST, digests, machine, stage=AGAINST),
        Stage(
            name=AGAINST_MEASURED,
            function=function,
            params=params,
            inputs={**inputs, "assemble": AGAINST},
            on_device=True,
            artifact=AGAINST,
            resumable=resumable,
        ),
    ]
    if asking.tasks is not None:
        stages.append(tasks_stage(asking, AGAINST, AGAINST, AGAINST_TASKS, digests))
    return tuple(stages)


def against_is_graph(recipe: Recipe) -> bool:
    """Whether the artifact in service runs in ONNX Runtime, as all that could replace it then have to.

    Raises:
        RecipeError: Some artifacts run in another runtime than the one in service.
    """
    if recipe.gate.against is None:
        return False
    served = ImportArtifact.model_validate({"name": AGAINST, "import": recipe.gate.against})
    graph = runs_as_graph(recipe, served)
    others = [one.name for one in recipe.artifacts if runs_as_graph(recipe, one) != graph]
    if others:
        here, there = ("ONNX Runtime", "torch or vLLM") if graph else ("torch or vLLM", "ONNX Runtime")
        raise RecipeError(
            f"the artifact in service runs in {here}, and these run in {there}: {', '.join(others)}",
            where="gate.against",
            hint="Both sides of a comparison are measured in one runtime: give artifacts of the other one a "
            "recipe of their own.",
        )
    return graph
