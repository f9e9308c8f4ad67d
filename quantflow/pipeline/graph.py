"""The stage graph of a recipe: which stages there are, with which parameters, fed by which others."""

from pathlib import Path

from quantflow.formats.params import AssembleParams, ExportParams
from quantflow.gate.params import GateParams
from quantflow.inspection.params import InspectParams
from quantflow.measure.params import BaselineParams, MeasureParams, YardstickParams
from quantflow.pipeline.data_params import data_params
from quantflow.pipeline.devices import decide
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.stage import Stage
from quantflow.quantize.params import CheckParams, PlannedArtifact, QuantizeParams, RefineParams
from quantflow.recipe.artifacts import Artifact, GptqArtifact, HfArtifact
from quantflow.recipe.margins import margins
from quantflow.recipe.schema import Recipe
from quantflow.recipe.scheme import scheme_of
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
    """
    own = [stage for artifact in recipe.artifacts for stage in _artifact_stages(recipe, artifact, machine)]
    shared = (*_shared_stages(recipe, machine, digests), *_quantizing_stages(recipe, machine))
    return (*shared, *own)


def _shared_stages(recipe: Recipe, machine: Machine, digests: DigestCache) -> tuple[Stage, ...]:
    ref = parse(recipe.model.source, recipe.base)
    data, pickle = recipe.data, recipe.model.allow_pickle
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
                    if not isinstance(artifact, HfArtifact)
                },
                window_lengths={
                    "data.calibration.length": data.calibration.length,
                    "data.evaluation.length": data.evaluation.length,
                },
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
        Stage(
            name="baseline",
            function="quantflow.measure.baseline:run",
            params=BaselineParams(device=machine.device, batch_tokens=recipe.runtime.batch_tokens),
            inputs={"source": "source", "data": "data"},
            on_device=True,
            resumable=True,
        ),
    )


def _quantizing_stages(recipe: Recipe, machine: Machine) -> tuple[Stage, ...]:
    """The stage that makes the codes of all artifacts, from one calibration; none where all are exports."""
    schemes = {
        scheme.id: scheme
        for scheme in map(scheme_of, (a for a in recipe.artifacts if not isinstance(a, HfArtifact)))
    }
    if not schemes:
        return ()
    quantize = Stage(
        name="quantize",
        function="quantflow.quantize.stage:run",
        params=QuantizeParams(
            candidates=tuple(scheme for _, scheme in sorted(schemes.items())),
            device=machine.device,
            calibration_dtype=decide(recipe.runtime.calibration_dtype, machine).calibration_dtype,
            batch_tokens=recipe.runtime.batch_tokens,
        ),
        inputs={"source": "source", "data": "data"},
        on_device=True,
        resumable=True,
    )
    return (quantize,)


def _artifact_stages(recipe: Recipe, artifact: Artifact, machine: Machine) -> tuple[Stage, ...]:
    name, device, batch_tokens = artifact.name, machine.device, recipe.runtime.batch_tokens
    limits = margins(recipe, artifact)
    return (
        *_making_stages(recipe, artifact, machine),
        Stage(
            name=f"measure:{name}",
            function="quantflow.measure.artifact:run",
            params=MeasureParams(device=device, batch_tokens=batch_tokens),
            inputs={
                "source": "source",
                "data": "data",
                "baseline": "baseline",
                "assemble": f"assemble:{name}",
            },
            on_device=True,
            artifact=name,
            resumable=True,
        ),
        Stage(
            name=f"gate:{name}",
            function="quantflow.gate.stage:run",
            params=GateParams(
                artifact=name, max_increase=limits.max_increase, max_mean_kl=limits.max_mean_kl
            ),
            inputs={
                "inspect": "inspect",
                "data": "data",
                "baseline": "baseline",
                "measure": f"measure:{name}",
            },
            artifact=name,
        ),
    )


def _making_stages(recipe: Recipe, artifact: Artifact, machine: Machine) -> tuple[Stage, ...]:
    """The stages that bring an artifact about: calibration for one that is quantized, none for an export."""
    name, batch_tokens = artifact.name, recipe.runtime.batch_tokens
    if isinstance(artifact, HfArtifact):
        export = Stage(
            name=f"assemble:{name}",
            function="quantflow.formats.export:run",
            params=ExportParams(name=name, format=artifact.format, dtype=artifact.dtype),
            inputs={"source": "source"},
            artifact=name,
        )
        return (export,)
    scheme, refines = scheme_of(artifact), isinstance(artifact, GptqArtifact) and artifact.refines
    refine = Stage(
        name=f"refine:{name}",
        function="quantflow.quantize.refine:run",
        params=RefineParams(
            scheme=scheme,
            keep=artifact.keep,
            device=machine.device,
            calibration_dtype=decide(recipe.runtime.calibration_dtype, machine).calibration_dtype,
            batch_tokens=batch_tokens,
        ),
        inputs={"source": "source", "data": "data", "codes": "quantize"},
        on_device=True,
        artifact=name,
        resumable=True,
    )
    assemble = Stage(
        name=f"assemble:{name}",
        function="quantflow.formats.assemble:run",
        params=AssembleParams(name=name, format=artifact.format, scheme=scheme, keep=artifact.keep),
        inputs={"source": "source", "codes": refine.name if refines else "quantize"},
        artifact=name,
    )
    yardstick = Stage(
        name=f"yardstick:{name}",
        function="quantflow.measure.yardstick:run",
        params=YardstickParams(
            bits=scheme.bits,
            group_size=scheme.group_size,
            symmetric=scheme.symmetric,
            keep=artifact.keep,
            device=machine.device,
            batch_tokens=batch_tokens,
        ),
        inputs={"source": "source", "data": "data", "baseline": "baseline"},
        on_device=True,
        artifact=name,
        resumable=True,
    )
    return (
        *((refine,) if refines else ()),
        assemble,
        # Rounding to nearest is its own yardstick.
        *((yardstick,) if scheme.method != "rtn" else ()),
    )
