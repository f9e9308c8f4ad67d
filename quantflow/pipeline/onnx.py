"""The stages of ONNX artifacts, and what has to be there before any stage starts."""

from quantflow.errors import RecipeError
from quantflow.formats.onnx.params import (
    OnnxAssembleParams,
    OnnxBaseParams,
    OnnxCheckParams,
    PlannedOnnx,
)
from quantflow.measure.onnx_params import OnnxFidelityParams, OnnxSpeedParams
from quantflow.pipeline.against import against_stages
from quantflow.pipeline.asked import asked_artifact_stages, asked_inputs, asked_stages
from quantflow.pipeline.assigning import choosing_stages, forces, keeps, least_documents
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.gate_params import gate_params, margin_inputs
from quantflow.pipeline.importing import import_stage, runs_as_graph
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.noise import GRAPH_NOISE, graph_noise_stage
from quantflow.pipeline.onnx_runtime import BASE, BUILDERS, asked_in_onnx, graph_params, installed
from quantflow.pipeline.scan_stage import SCAN, graph_scan_stages
from quantflow.pipeline.stage import Stage
from quantflow.quantize.params import RemedyParams, Scheme, int8_scheme
from quantflow.recipe.artifacts import ImportArtifact
from quantflow.recipe.onnx import BY_BLOCK, OnnxArtifact
from quantflow.recipe.schema import Recipe
from quantflow.recipe.serving import SpeedLimits
from quantflow.recipe.spared import assigning
from quantflow.sensitivity.choosing import Choosing
from quantflow.sensitivity.kept import ASSIGNMENT
from quantflow.sensitivity.params import ladder_of

BASELINE, SELECTION_BASELINE = "baseline:onnx", "baseline-selection:onnx"
FIDELITY = "fidelity"
FIDELITY_WINDOWS = 4
"""What of the lossless graph is held against torch: one that is wrong is so at once, at some length."""
GPU_SCHEMES = ("fp16", *BY_BLOCK)


def onnx_artifacts(recipe: Recipe) -> dict[str, OnnxArtifact]:
    """Key of the recipe, e.g. `artifacts[0]` → ONNX artifact."""
    return {
        f"artifacts[{index}]": artifact
        for index, artifact in enumerate(recipe.artifacts)
        if isinstance(artifact, OnnxArtifact)
    }


def onnx_shared_stages(recipe: Recipe, machine: Machine, digests: DigestCache) -> tuple[Stage, ...]:
    """The stages that all ONNX artifacts of a recipe share, imported ones, too; none where it has none.

    Raises:
        RecipeError: A scheme cannot be run on the device.
        RuntimeUnavailableError: ONNX Runtime, or its build for the device, is not installed.
    """
    artifacts = onnx_artifacts(recipe)
    if not any(runs_as_graph(recipe, artifact) for artifact in recipe.artifacts):
        return ()
    for key, artifact in artifacts.items():
        _require_scheme(key, artifact, machine)
    return (
        Stage(
            name="onnx-check",
            function="quantflow.formats.onnx.check:run",
            params=OnnxCheckParams(
                artifacts={key: _planned(artifact) for key, artifact in artifacts.items()}
            ),
            inputs={"source": "source"},
        ),
        Stage(
            name=BASE,
            function="quantflow.formats.onnx.base:run",
            params=OnnxBaseParams(
                precision="fp16" if machine.device == "cuda" else "fp32",
                provider=machine.device,
                builder=installed(BUILDERS[machine.device], machine),
            ),
            inputs={"source": "source"},
        ),
        Stage(
            name=BASELINE,
            function="quantflow.measure.onnx:baseline",
            params=graph_params(recipe, machine),
            inputs={"base": BASE, "data": "data"},
            on_device=True,
            resumable=True,
        ),
        graph_noise_stage(graph_params(recipe, machine).session, BASE, BASELINE),
        Stage(
            name=FIDELITY,
            function="quantflow.measure.onnx_fidelity:run",
            params=OnnxFidelityParams(
                session=graph_params(recipe, machine).session,
                device=machine.device,
                windows=FIDELITY_WINDOWS,
                tokens=recipe.data.evaluation.length,  # as long as what is judged: windows of attention show
            ),
            inputs={"source": "source", "base": BASE, "data": "data"},
            on_device=True,
        ),
        *([_selection_baseline(recipe, machine)] if _chooses(recipe) else []),
        *asked_stages(asked_in_onnx(recipe, machine), digests),
    )


def onnx_against_stages(recipe: Recipe, machine: Machine, digests: DigestCache) -> tuple[Stage, ...]:
    """The stages that measure the artifact in service where it is a graph."""
    return against_stages(
        recipe,
        machine,
        digests,
        "quantflow.measure.onnx:artifact",
        graph_params(recipe, machine),
        {"base": BASE, "data": "data", "baseline": BASELINE},
        asked_in_onnx(recipe, machine),
        resumable=True,
    )


def onnx_artifact_stages(
    recipe: Recipe, artifact: OnnxArtifact | ImportArtifact, machine: Machine, digests: DigestCache
) -> tuple[Stage, ...]:
    """The stages that make or import, measure, time and judge one ONNX artifact."""
    name, measuring = artifact.name, graph_params(recipe, machine)
    limits = recipe.gate.speed or SpeedLimits()
    asking = asked_in_onnx(recipe, machine)
    return (
        *_making_stages(recipe, artifact, machine, digests),
        Stage(
            name=f"measure:{name}",
            function="quantflow.measure.onnx:artifact",
            params=measuring,
            inputs={"base": BASE, "data": "data", "baseline": BASELINE, "assemble": f"assemble:{name}"},
            on_device=True,
            artifact=name,
            resumable=True,
        ),
        Stage(
            name=f"speed:{name}",
            function="quantflow.measure.onnx_speed:run",
            params=OnnxSpeedParams(
                session=measuring.session,
                instruction_set=measuring.instruction_set,
                contexts=limits.contexts,
                output_tokens=limits.output_tokens,
                rounds=limits.rounds,
            ),
            inputs={"base": BASE, "assemble": f"assemble:{name}"},
            on_device=True,
            artifact=name,
            again=True,
        ),
        *asked_artifact_stages(recipe, name, asking, digests),
        Stage(
            name=f"gate:{name}",
            function="quantflow.gate.stage:run",
            params=gate_params(recipe, artifact),
            inputs={
                "inspect": "inspect",
                "data": "data",
                "baseline": BASELINE,
                "noise": GRAPH_NOISE,
                "graph": FIDELITY,
                "measure": f"measure:{name}",
                "speed": f"speed:{name}",
                **asked_inputs(recipe, name, asking),
                **margin_inputs(artifact),
            },
            artifact=name,
        ),
    )


def _making_stages(
    recipe: Recipe, artifact: OnnxArtifact | ImportArtifact, machine: Machine, digests: DigestCache
) -> tuple[Stage, ...]:
    name = artifact.name
    if isinstance(artifact, ImportArtifact):
        key = f"artifacts[{recipe.artifacts.index(artifact)}].import"
        return (import_stage(recipe, key, artifact.path, name, digests, machine, stage=f"assemble:{name}"),)
    codes = {"codes": f"assemble:{artifact.codes_from}"} if artifact.codes_from else {}
    scheme = onnx_codes(artifact)
    if scheme is not None:
        codes["values"] = f"remedy:{name}" if artifact.remedy else "quantize"
    choosing = _choosing_stages(recipe, artifact, machine)
    if choosing:
        codes[ASSIGNMENT] = choosing[-1].name
    return (
        *([_remedy_stage(recipe, artifact, scheme, machine)] if scheme and artifact.remedy else []),
        *choosing,
        Stage(
            name=f"assemble:{name}",
            function="quantflow.formats.onnx.assemble:run",
            params=_assemble_params(recipe, artifact, machine),
            inputs={"source": "source", "base": BASE, **codes},
            artifact=name,
        ),
    )


def _assemble_params(recipe: Recipe, artifact: OnnxArtifact, machine: Machine) -> OnnxAssembleParams:
    session = graph_params(recipe, machine).session
    return OnnxAssembleParams(
        name=artifact.name,
        scheme=artifact.scheme,
        keep=keeps(recipe, artifact),
        block_size=artifact.block_size,
        session=session.model_copy(update={"threads": 1}),  # not a part of what is written
    )


def _chooses(recipe: Recipe) -> bool:
    """Whether units of an ONNX artifact are chosen."""
    return any(assigning(recipe, artifact) is not None for artifact in onnx_artifacts(recipe).values())


def _selection_baseline(recipe: Recipe, machine: Machine) -> Stage:
    """The lossless graph on the selection documents, which choices are held against."""
    params = graph_params(recipe, machine)
    return Stage(
        name=SELECTION_BASELINE,
        function="quantflow.measure.onnx:baseline",
        params=params.model_copy(update={"split": "selection", "min_documents": least_documents(recipe)}),
        inputs={"base": BASE, "data": "data"},
        on_device=True,
        resumable=True,
    )


def _choosing_stages(recipe: Recipe, artifact: OnnxArtifact, machine: Machine) -> tuple[Stage, ...]:
    """The stages that choose which units are spared: of the values as they come, then of the remedied."""
    scheme = onnx_codes(artifact)
    if scheme is None or assigning(recipe, artifact) is None:
        return ()
    remedied = f"remedy:{artifact.name}" if artifact.remedy else None
    assemble, values = _assemble_params(recipe, artifact, machine), remedied or "quantize"
    made_of = {"codes": values, "base": BASE}
    scan = graph_scan_stages(recipe, artifact, scheme, assemble, made_of, machine)
    choosing = Choosing(
        assemble=assemble,
        graph=graph_params(recipe, machine),
        force=forces(recipe),
        ladder=ladder_of(scheme),
        device=machine.device,
        batch_tokens=recipe.runtime.batch_tokens,
    )
    inputs = {
        "source": "source",
        "base": BASE,
        "data": "data",
        "codes": "quantize",
        SCAN: scan[-1].name,
        "baseline": SELECTION_BASELINE,
    }
    return (*scan, *choosing_stages(recipe, artifact, choosing, inputs, remedied))


def onnx_codes(artifact: OnnxArtifact) -> Scheme | None:
    """The scheme of the INT8 values that the quantize stage has to make for an artifact; None for none."""
    if artifact.scheme == "w8a8":
        return int8_scheme("w8a8")
    return int8_scheme("int8") if artifact.scheme == "w8" and artifact.remedy else None


def _remedy_stage(recipe: Recipe, artifact: OnnxArtifact, scheme: Scheme, machine: Machine) -> Stage:
    return Stage(
        name=f"remedy:{artifact.name}",
        function="quantflow.remedies.stage:run",
        params=RemedyParams(
            scheme=scheme,
            keep=keeps(recipe, artifact),
            max_floating=artifact.max_floating,
            reduced=artifact.reduce_range,
            device=machine.device,
            batch_tokens=recipe.runtime.batch_tokens,
        ),
        inputs={"source": "source", "data": "data", "codes": "quantize"},
        on_device=True,
        artifact=artifact.name,
        resumable=True,
    )


def _planned(artifact: OnnxArtifact) -> PlannedOnnx:
    by_block = artifact.scheme in BY_BLOCK and artifact.codes_from is None
    return PlannedOnnx(keep=artifact.keep, block_size=artifact.block_size if by_block else None)


def _require_scheme(key: str, artifact: OnnxArtifact, machine: Machine) -> None:
    on_gpu = machine.device == "cuda"
    if on_gpu and artifact.scheme not in GPU_SCHEMES:
        raise RecipeError(
            f"scheme {artifact.scheme} is for processors, and this run computes on a GPU",
            where=f"{key}.scheme",
            hint=f"On a GPU there are {', '.join(GPU_SCHEMES)}; or set runtime.device to cpu.",
        )
    if not on_gpu and artifact.scheme == "fp16":
        raise RecipeError(
            "scheme fp16 is for GPUs: ONNX Runtime has no fast float16 on processors",
            where=f"{key}.scheme",
            hint="Choose fp32, or run on a machine with an NVIDIA GPU.",
        )
