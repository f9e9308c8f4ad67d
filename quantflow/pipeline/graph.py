"""The stage graph of a recipe: which stages there are, with which parameters, fed by which others."""

from pathlib import Path

from quantflow.formats.params import ImportParams
from quantflow.gate.adaptive import SequentialMargins
from quantflow.inspection.params import InspectParams
from quantflow.measure.adaptive_params import AdaptiveParams
from quantflow.measure.params import (
    BaselineParams,
    MeasureParams,
)
from quantflow.pipeline.adaptive import look_seed
from quantflow.pipeline.against import against_is_graph, against_stages
from quantflow.pipeline.asked import (
    asked_artifact_stages,
    asked_in_torch,
    asked_inputs,
    asked_stages,
    leakage_stage,
    require_outputs,
)
from quantflow.pipeline.assigning import selection_baseline
from quantflow.pipeline.data_params import data_params
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.drift import drift_stage
from quantflow.pipeline.gate_params import gate_params
from quantflow.pipeline.importing import runs_as_graph
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.making import making_stages, quantizing_stages
from quantflow.pipeline.measured_in import KL_MARK, measured_in
from quantflow.pipeline.noise import NOISE, noise_stage
from quantflow.pipeline.onnx import (
    onnx_against_stages,
    onnx_artifact_stages,
    onnx_shared_stages,
)
from quantflow.pipeline.onnx_runtime import asked_in_onnx
from quantflow.pipeline.scan_stage import scan_stages
from quantflow.pipeline.serving import (
    memory_margins,
    speed_margin,
    speed_stage,
    times_serving,
)
from quantflow.pipeline.stage import Stage
from quantflow.quantize.params import CheckParams, PlannedArtifact
from quantflow.recipe.artifacts import (
    ImportArtifact,
    TorchArtifact,
    is_quantized_here,
)
from quantflow.recipe.margins import margins
from quantflow.recipe.onnx import OnnxArtifact
from quantflow.recipe.schema import Recipe
from quantflow.recipe.scheme import scheme_of
from quantflow.recipe.spared import assigns
from quantflow.runtime.catalogue import TORCH
from quantflow.source.identify import external_files, source_params
from quantflow.source.uri import parse


def build_graph(recipe: Recipe, machine: Machine, digests: DigestCache) -> tuple[Stage, ...]:
    """Stages in an order in which every input comes before the stages that need it.

    Args:
        recipe: A loaded recipe.
        machine: Where it will run.
        digests: Hashes of the files that the recipe names.

    Raises:
        RecipeError: The source that the recipe names is not there.
        StoreError: A file that the recipe names cannot be read.
        RuntimeUnavailableError: It is to be measured in a runtime that is not installed or lacks a kernel.
    """
    own = [
        stage
        # Graphs come after the artifacts whose codes they may take.
        for artifact in sorted(recipe.artifacts, key=lambda one: runs_as_graph(recipe, one))
        for stage in (
            onnx_artifact_stages(recipe, artifact, machine, digests)
            if isinstance(artifact, OnnxArtifact)
            or (isinstance(artifact, ImportArtifact) and runs_as_graph(recipe, artifact))
            else _artifact_stages(recipe, artifact, machine, digests)
        )
    ]
    require_outputs(recipe)
    in_torch = any(not runs_as_graph(recipe, artifact) for artifact in recipe.artifacts)
    scan = scan_stages(recipe, machine) if assigns(recipe) else ()
    drift = drift_stage(recipe, machine, digests)
    early = drift is not None and "quantize" not in drift.inputs  # before hours are spent on other text
    asking = asked_in_torch(recipe, machine) if in_torch else asked_in_onnx(recipe, machine)
    stages = (
        *_shared_stages(recipe, machine, digests, drift if early else None, in_torch=in_torch),
        *onnx_shared_stages(recipe, machine, digests),
        *(asked_stages(asked_in_torch(recipe, machine), digests) if in_torch else ()),
        *(
            onnx_against_stages(recipe, machine, digests)
            if against_is_graph(recipe)
            else _against_stages(recipe, machine, digests)
        ),
        *([leakage_stage(asking)] if recipe.gate.tasks else []),
        *quantizing_stages(recipe, machine),
        *([drift] if drift is not None and not early else []),
        *scan,
        *own,
    )
    # What somebody else made is looked at before anything is computed: it may have to be refused.
    imports = [stage for stage in stages if isinstance(stage.params, ImportParams)]
    source, *others = (stage for stage in stages if not isinstance(stage.params, ImportParams))
    return (source, *imports, *others)


def _against_stages(recipe: Recipe, machine: Machine, digests: DigestCache) -> tuple[Stage, ...]:
    """The stages that measure the artifact in service where it is no graph."""
    where = measured_in(recipe, machine)[0]
    return against_stages(
        recipe,
        machine,
        digests,
        where.runtime.measure,
        where.params or MeasureParams(device=machine.device, batch_tokens=recipe.runtime.batch_tokens),
        {"source": "source", "data": "data", "baseline": "baseline"},
        asked_in_torch(recipe, machine),
        resumable=where.runtime is TORCH,
    )


def _shared_stages(
    recipe: Recipe, machine: Machine, digests: DigestCache, drift: Stage | None, *, in_torch: bool
) -> tuple[Stage, ...]:
    ref = parse(recipe.model.source, recipe.base)
    data, pickle, batch_tokens = recipe.data, recipe.model.allow_pickle, recipe.runtime.batch_tokens
    return (
        Stage(
            name="source",
            function="quantflow.source.stage:run",
            params=source_params(ref, recipe.model.revision, digests.digest, allow_pickle=pickle),
            external={str(path): digests.digest(path) for path in external_files(ref, allow_pickle=pickle)},
        ),
        Stage(
            name="check",
            function="quantflow.quantize.check:run",
            params=CheckParams(
                artifacts={
                    f"artifacts[{index}]": PlannedArtifact(
                        format=artifact.format, scheme=scheme_of(artifact), keep=artifact.keep
                    )
                    for index, artifact in enumerate(recipe.artifacts)
                    if is_quantized_here(artifact)
                },
                window_lengths={
                    "data.calibration.length": data.calibration.length,
                    "data.evaluation.length": data.evaluation.length,
                },
                keep=recipe.sensitivity.keep if recipe.sensitivity else (),
                force=recipe.sensitivity.force if recipe.sensitivity else (),
            ),
            inputs={"source": "source"},
        ),
        Stage(
            name="inspect",
            function="quantflow.inspection.stage:run",
            params=InspectParams(device=machine.device, allow_suspect=recipe.model.allow_suspect),
            inputs={"source": "source"},
            on_device=True,
        ),
        Stage(
            name="data",
            function="quantflow.data.stage:run",
            params=data_params(data),
            inputs={"source": "source"},
            external={name: digests.digest(Path(name)) for name in data.files},
        ),
        *([drift] if drift is not None else []),  # files of production that cannot be read are said at once
        *(
            Stage(
                name=f"baseline{where.mark}",
                function=where.runtime.baseline,
                params=where.params
                or BaselineParams(
                    device=machine.device, batch_tokens=batch_tokens, look_seed=look_seed(recipe)
                ),
                inputs={"source": "source", "data": "data"},
                on_device=True,
                resumable=where.runtime is TORCH,
            )
            for where in measured_in(recipe, machine)
        ),
        *(
            noise_stage(machine, batch_tokens, f"baseline{where.mark}")
            for where in measured_in(recipe, machine)
            if where.runtime is TORCH and in_torch
        ),
        *([selection_baseline(recipe, machine)] if assigns(recipe) else []),
    )


def _artifact_stages(
    recipe: Recipe, artifact: TorchArtifact, machine: Machine, digests: DigestCache
) -> tuple[Stage, ...]:
    name, device, batch_tokens = artifact.name, machine.device, recipe.runtime.batch_tokens
    speed, memory = speed_margin(recipe), memory_margins(recipe)
    looked = _adaptive_params(recipe, artifact, machine)
    inputs = {"inspect": "inspect", "data": "data", "baseline": "baseline", "measure": f"measure:{name}"}
    if len(measured_in(recipe, machine)) > 1:
        inputs |= {"kl": f"measure{KL_MARK}:{name}", "baseline-kl": f"baseline{KL_MARK}"}
    if any(where.runtime is TORCH for where in measured_in(recipe, machine)):
        inputs["noise"] = NOISE
    if speed is not None or memory is not None:
        inputs["speed"] = f"speed:{name}"
    asking = asked_in_torch(recipe, machine)
    inputs |= {"source": "source", "assemble": f"assemble:{name}"}
    inputs |= asked_inputs(recipe, name, asking)
    return (
        *making_stages(recipe, artifact, machine, digests),
        *(
            Stage(
                name=f"measure{where.mark}:{name}",
                function=where.runtime.measure if looked is None else "quantflow.measure.adaptive:run",
                params=where.params or looked or MeasureParams(device=device, batch_tokens=batch_tokens),
                inputs={
                    "source": "source",
                    "data": "data",
                    "baseline": f"baseline{where.mark}",
                    "assemble": f"assemble:{name}",
                },
                on_device=True,
                artifact=name,
                resumable=where.runtime is TORCH,
            )
            for where in measured_in(recipe, machine)
        ),
        *([speed_stage(recipe, artifact, machine)] if times_serving(recipe) else []),
        *asked_artifact_stages(recipe, name, asking, digests),
        Stage(
            name=f"gate:{name}",
            function="quantflow.gate.stage:run",
            params=gate_params(recipe, artifact),
            inputs=inputs,
            artifact=name,
        ),
    )


def _adaptive_params(recipe: Recipe, artifact: TorchArtifact, machine: Machine) -> AdaptiveParams | None:
    """Parameters of measuring an artifact look by look; None where it is measured in one go."""
    seed, limits = look_seed(recipe), margins(recipe, artifact)
    if seed is None:
        return None
    return AdaptiveParams(
        device=machine.device,
        batch_tokens=recipe.runtime.batch_tokens,
        look_seed=seed,
        margins=SequentialMargins(
            artifact=artifact.name, max_increase=limits.max_increase, max_mean_kl=limits.max_mean_kl
        ),
    )
