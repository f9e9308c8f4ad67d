"""The stages of what a recipe asks of an artifact beside its loss on text: tasks, generated text, scorers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quantflow.errors import RecipeError
from quantflow.gate.asked import Asked, CustomMargin, DriftMargin, GenerationMargin, TaskMargin
from quantflow.leakage.params import LeakageParams
from quantflow.measure.onnx_params import OnnxGenerationParams
from quantflow.measure.params import CustomParams, CustomScore, GenerationParams, PromptParams
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.stage import Stage
from quantflow.recipe.schema import Recipe
from quantflow.recipe.tasks import CustomScorer
from quantflow.tasks.params import OnnxTasksParams, TaskListParams, TasksParams, TaskSpec

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


@dataclass(frozen=True)
class Asking:
    """What models are asked in one runtime, and by which stages.

    Attributes:
        tasks: What they are run on; None where there are no tasks.
        generation: What they go on with; None where no text is generated.
        baseline: Inputs of the stages that ask the baseline: role → stage.
        artifact: Inputs of those that ask an artifact, beside it and the baseline's answers.
        tasks_module: Module of the stages that run tasks.
        generation_module: Module of those that generate.
        mark: What the names of the baseline's stages have besides.
    """

    tasks: TasksParams | OnnxTasksParams | None
    generation: GenerationParams | OnnxGenerationParams | None
    baseline: Mapping[str, str]
    artifact: Mapping[str, str]
    tasks_module: str
    generation_module: str
    mark: str = ""

    @property
    def baseline_tasks(self) -> str:
        """Stage that runs the baseline on tasks."""
        return f"tasks{self.mark}"

    @property
    def baseline_generation(self) -> str:
        """Stage that lets the baseline generate."""
        return f"generation{self.mark}"


def asked_in_torch(recipe: Recipe, machine: Machine) -> Asking:
    """What artifacts that torch runs are asked.

    Raises:
        RecipeError: The folder of tasks is not there.
    """
    device, batch_tokens = machine.device, recipe.runtime.batch_tokens
    tasks, prompts = task_list(recipe), prompts_of(recipe)
    return Asking(
        tasks=None if tasks is None else TasksParams(**dict(tasks), device=device, batch_tokens=batch_tokens),
        generation=None
        if prompts is None
        else GenerationParams(**dict(prompts), device=device, batch_tokens=batch_tokens),
        baseline={"source": "source"},
        artifact={},
        tasks_module="quantflow.tasks.stage",
        generation_module="quantflow.measure.generation",
    )


def require_outputs(recipe: Recipe) -> None:
    """Refuse scorers that would have nothing to score.

    Raises:
        RecipeError: Nothing is generated.
    """
    if recipe.gate.custom and recipe.gate.generation is None:
        raise RecipeError(
            "scorers get what both sides generate, and nothing is generated",
            where="gate.custom",
            hint="Add gate.generation, which says for how many prompts.",
        )


def asked_stages(asking: Asking, digests: DigestCache) -> tuple[Stage, ...]:
    """The stages that run the baseline.

    Raises:
        StoreError: A file of the tasks folder cannot be read.
    """
    stages = []
    if asking.tasks is not None:
        external = {path: digests.digest(Path(path)) for path in asking.tasks.files.values()}
        stages.append(
            Stage(
                name=asking.baseline_tasks,
                function=f"{asking.tasks_module}:baseline",
                params=asking.tasks,
                inputs=asking.baseline,
                on_device=True,
                external=external,
                resumable=True,
            )
        )
    if asking.generation is not None:
        stages.append(
            Stage(
                name=asking.baseline_generation,
                function=f"{asking.generation_module}:baseline",
                params=asking.generation,
                inputs={**asking.baseline, "data": "data"},
                on_device=True,
                resumable=True,
            )
        )
    return tuple(stages)


def leakage_stage(asking: Asking) -> Stage:
    """The stage that looks for the items of the baseline's tasks in calibration text."""
    return Stage(
        name=LEAKAGE,
        function="quantflow.leakage.stage:run",
        params=LeakageParams(),
        inputs={"source": "source", "data": "data", "tasks": asking.baseline_tasks},
    )


def tasks_stage(asking: Asking, assembled: str, name: str, stage: str, digests: DigestCache) -> Stage:
    """The stage that runs an artifact on the tasks that the baseline was run on.

    Args:
        asking: What it is asked.
        assembled: Stage that made or imported it.
        name: Of the artifact.
        stage: Name of the stage.
        digests: Hashes of the files that the recipe names.
    """
    assert asking.tasks is not None
    return Stage(
        name=stage,
        function=f"{asking.tasks_module}:artifact",
        params=asking.tasks,
        # The baseline goes first: what cannot be run is found out before anything is quantized.
        inputs={**asking.artifact, "assemble": assembled, "baseline": asking.baseline_tasks},
        on_device=True,
        external={path: digests.digest(Path(path)) for path in asking.tasks.files.values()},
        artifact=name,
        resumable=True,
    )


def asked_artifact_stages(
    recipe: Recipe, name: str, asking: Asking, digests: DigestCache
) -> tuple[Stage, ...]:
    """The stages that run an artifact on what the baseline was run on.

    Args:
        recipe: The recipe.
        name: Of the artifact.
        asking: What it is asked.
        digests: Hashes of the files that the recipe names.
    """
    stages, assembled = [], f"assemble:{name}"
    if asking.tasks is not None:
        stages.append(tasks_stage(asking, assembled, name, f"tasks:{name}", digests))
    if asking.generation is not None:
        stages.append(
            Stage(
                name=f"generation:{name}",
                function=f"{asking.generation_module}:artifact",
                params=asking.generation,
                inputs={
                    **asking.artifact,
                    "assemble": assembled,
                    "generation": asking.baseline_generation,
                },
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
                inputs={"baseline": asking.baseline_generation, "artifact": f"generation:{name}"},
                external={
                    path: digests.digest(Path(path)) for scorer in scorers for path in scorer.files.values()
                },
                artifact=name,
            )
        )
    return tuple(stages)


def asked_inputs(recipe: Recipe, name: str, asking: Asking) -> dict[str, str]:
    """What the gate stage of an artifact needs of them: role → stage."""
    inputs: dict[str, str] = {}
    if recipe.gate.tasks:
        inputs |= {"tasks-baseline": asking.baseline_tasks, "tasks": f"tasks:{name}"}
    if recipe.gate.generation is not None:
        inputs |= {"generation-baseline": asking.baseline_generation, "generation": f"generation:{name}"}
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


def task_list(recipe: Recipe) -> TaskListParams | None:
    """What every side is run on; None where there are no tasks.

    Raises:
        RecipeError: The folder of tasks is not there.
    """
    if not recipe.gate.tasks:
        return None
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
    return TaskListParams(tasks=specs, files=_task_files(recipe), seed=recipe.data.seed)


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


def prompts_of(recipe: Recipe) -> PromptParams | None:
    """What every side goes on with; None where no text is generated."""
    generation = recipe.gate.generation
    if generation is None:
        return None
    return PromptParams(
        prompts=generation.prompts,
        prompt_tokens=generation.prompt_tokens,
        output_tokens=generation.output_tokens,
        seed=recipe.data.seed,
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
