"""The stages of what a recipe asks of an artifact beside its loss on text: tasks, generated text, scorers."""

from pathlib import Path

from quantflow.errors import RecipeError
from quantflow.gate.asked import Asked, CustomMargin, DriftMargin, GenerationMargin, TaskMargin
from quantflow.leakage.params import LeakageParams
from quantflow.measure.params import CustomParams, CustomScore, GenerationParams
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.stage import Stage
from quantflow.recipe.onnx import OnnxArtifact
from quantflow.recipe.schema import Recipe
from quantflow.recipe.tasks import CustomScorer
from quantflow.tasks.params import TasksParams, TaskSpec

BASELINE_TASKS, BASELINE_GENERATION = "tasks", "generation"
LEAKAGE = "leakage"
AGAINST, AGAINST_MEASURED, AGAINST_TASKS = "against", "measure-against", "tasks-against"
"""Stages of the artifact in service."""


def asked_of(recipe: Recipe) -> Asked:
    """Margins of everything that the recipe asks for, as the gate stage takes them."""
    gate = recipe.gate
    generation = gate.generation
    return Asked(
        tasks=tuple(TaskMargin(task=t.name, max_drop=t.max_drop, required=t.required) for t in gate.tasks),
        generation=None
        if generation is None
        else GenerationMargin(min_identical=generation.min_identical, required=generation.required),
        identity=None if gate.identity is None else gate.identity.required,
        custom=tuple(
            CustomMargin(
                name=scorer.name,
                max_drop=scorer.max_drop,
                higher_is_better=scorer.higher_is_better,
                required=scorer.required,
            )
            for scorer in gate.custom
        ),
        drift=None
        if gate.drift is None
        else DriftMargin(max_js=gate.drift.max_js, required=gate.drift.required),
    )


def asked_stages(recipe: Recipe, machine: Machine, digests: DigestCache) -> tuple[Stage, ...]:
    """The stages that run the baseline, and the one that looks for tasks' items in calibration text.

    Raises:
        RecipeError: The folder of tasks is not there, scorers have nothing to score, or an artifact is an
            ONNX graph, which cannot be run on tasks.
        StoreError: A file of it cannot be read.
    """
    graphs = [artifact.name for artifact in recipe.artifacts if isinstance(artifact, OnnxArtifact)]
    if graphs and (recipe.gate.tasks or recipe.gate.generation is not None):
        raise RecipeError(
            f"tasks and generated text are run in torch, which does not run ONNX graphs: {', '.join(graphs)}",
            where="gate.tasks" if recipe.gate.tasks else "gate.generation",
            hint="Give ONNX artifacts a recipe of their own, without gate.tasks and gate.generation.",
        )
    stages = []
    if recipe.gate.tasks:
        params = tasks_params(recipe, machine)
        external = {path: digests.digest(Path(path)) for path in params.files.values()}
        stages.append(
            Stage(
                name=BASELINE_TASKS,
                function="quantflow.tasks.stage:baseline",
                params=params,
                inputs={"source": "source"},
                on_device=True,
                external=external,
                resumable=True,
            )
        )
        stages.append(
            Stage(
                name=LEAKAGE,
                function="quantflow.leakage.stage:run",
                params=LeakageParams(),
                inputs={"source": "source", "data": "data", "tasks": BASELINE_TASKS},
            )
        )
    if recipe.gate.generation is not None:
        stages.append(
            Stage(
                name=BASELINE_GENERATION,
                function="quantflow.measure.generation:baseline",
                params=_generation_params(recipe, machine),
                inputs={"source": "source", "data": "data"},
                on_device=True,
                resumable=True,
            )
        )
    elif recipe.gate.custom:
        raise RecipeError(
            "scorers get what both sides generate, and nothing is generated",
            where="gate.custom",
            hint="Add gate.generation, which says for how many prompts.",
        )
    return tuple(stages)


def asked_artifact_stages(
    recipe: Recipe, name: str, machine: Machine, digests: DigestCache
) -> tuple[Stage, ...]:
    """The stages that run an artifact on what the baseline was run on.

    Args:
        recipe: The recipe.
        name: Of the artifact.
        machine: Where it runs.
        digests: Hashes of the files that the recipe names.
    """
    stages = []
    if recipe.gate.tasks:
        params = tasks_params(recipe, machine)
        stages.append(
            Stage(
                name=f"tasks:{name}",
                function="quantflow.tasks.stage:artifact",
                params=params,
                # The baseline goes first: what cannot be run is found out before anything is quantized.
                inputs={"assemble": f"assemble:{name}", "baseline": BASELINE_TASKS},
                on_device=True,
                external={path: digests.digest(Path(path)) for path in params.files.values()},
                artifact=name,
                resumable=True,
            )
        )
    if recipe.gate.generation is not None:
        stages.append(
            Stage(
                name=f"generation:{name}",
                function="quantflow.measure.generation:artifact",
                params=_generation_params(recipe, machine),
                inputs={"assemble": f"assemble:{name}", "generation": BASELINE_GENERATION},
                on_device=True,
                artifact=name,
                resumable=True,
            )
        )
    if recipe.gate.custom:
        scorers = tuple(_scorer(scorer, recipe.base) for scorer in recipe.gate.custom)
        stages.append(
            Stage(
                name=f"custom:{name}",
                function="quantflow.measure.custom:run",
                params=CustomParams(scorers=scorers),
                inputs={"baseline": BASELINE_GENERATION, "artifact": f"generation:{name}"},
                external={
                    path: digests.digest(Path(path)) for scorer in scorers for path in scorer.files.values()
                },
                artifact=name,
            )
        )
    return tuple(stages)


def asked_inputs(recipe: Recipe, name: str) -> dict[str, str]:
    """What the gate stage of an artifact needs of them: role → stage."""
    inputs: dict[str, str] = {}
    if recipe.gate.tasks:
        inputs |= {"tasks-baseline": BASELINE_TASKS, "tasks": f"tasks:{name}"}
    if recipe.gate.generation is not None:
        inputs |= {"generation-baseline": BASELINE_GENERATION, "generation": f"generation:{name}"}
    if recipe.gate.custom:
        inputs["custom"] = f"custom:{name}"
    if recipe.gate.against is not None:
        inputs["against"] = AGAINST_MEASURED
        if recipe.gate.tasks:
            inputs["tasks-against"] = AGAINST_TASKS
    if recipe.gate.drift is not None:
        inputs["drift"] = "drift"
    if recipe.gate.identity is not None:
        inputs |= {"source": "source", "assemble": f"assemble:{name}"}
    return inputs


def tasks_params(recipe: Recipe, machine: Machine) -> TasksParams:
    """What every side is run on.

    Raises:
        RecipeError: The folder of tasks is not there.
    """
    specs = tuple(
        TaskSpec(
            name=task.name,
            metric=task.metric,
            limit=task.limit,
            num_fewshot=task.num_fewshot,
            chat_template=task.chat_template,
            cluster=task.cluster,
            execute_code=task.execute_code,
        )
        for task in recipe.gate.tasks
    )
    return TasksParams(
        tasks=specs,
        files=_task_files(recipe),
        seed=recipe.data.seed,
        device=machine.device,
        batch_tokens=recipe.runtime.batch_tokens,
    )


def _task_files(recipe: Recipe) -> dict[str, str]:
    if recipe.gate.tasks_dir is None:
        return {}
    folder = recipe.base / Path(recipe.gate.tasks_dir).expanduser()
    if not folder.is_dir():
        raise RecipeError(
            f"there is no such folder: {folder}",
            where="gate.tasks_dir",
            hint="Paths are relative to the recipe.",
        )
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): str(path.resolve()) for path in files}


def _generation_params(recipe: Recipe, machine: Machine) -> GenerationParams:
    generation = recipe.gate.generation
    assert generation is not None
    return GenerationParams(
        prompts=generation.prompts,
        prompt_tokens=generation.prompt_tokens,
        output_tokens=generation.output_tokens,
        seed=recipe.data.seed,
        device=machine.device,
        batch_tokens=recipe.runtime.batch_tokens,
    )


def _scorer(scorer: CustomScorer, base: Path) -> CustomScore:
    if scorer.function is not None:
        name, _, function = scorer.function.rpartition(":")
        path = base / name
        if not path.is_file():
            raise RecipeError(
                f"there is no such file: {path}",
                where="gate.custom",
                hint="Paths are relative to the recipe.",
            )
        return CustomScore(
            name=scorer.name, function=function, command=None, files={name: str(path.resolve())}
        )
    command = scorer.command or ()
    named = {part: str((base / part).resolve()) for part in command if (base / part).is_file()}
    return CustomScore(name=scorer.name, function=None, command=command, files=named)
