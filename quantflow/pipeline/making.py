"""The stages that make artifacts which are no graphs: codes for all of them, then each one's own."""

from quantflow.formats.params import AssembleParams, ExportParams
from quantflow.measure.params import YardstickParams
from quantflow.pipeline.assigning import assigning_stages, keeps
from quantflow.pipeline.devices import decide
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.importing import import_stage
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.measured_in import measured_in
from quantflow.pipeline.onnx import onnx_codes
from quantflow.pipeline.stage import Stage
from quantflow.quantize.params import QuantizeParams, RefineParams
from quantflow.recipe.artifacts import (
    GptqArtifact,
    HfArtifact,
    ImportArtifact,
    TorchArtifact,
    is_quantized_here,
)
from quantflow.recipe.onnx import OnnxArtifact
from quantflow.recipe.schema import Recipe
from quantflow.recipe.scheme import scheme_of
from quantflow.runtime.catalogue import TORCH
from quantflow.sensitivity.kept import ASSIGNMENT


def quantizing_stages(recipe: Recipe, machine: Machine) -> tuple[Stage, ...]:
    """The stage that makes the codes of all artifacts, from one calibration; none where all are exports."""
    schemes = {
        scheme.id: scheme
        for scheme in (
            *map(scheme_of, (a for a in recipe.artifacts if is_quantized_here(a))),
            *(onnx_codes(a) for a in recipe.artifacts if isinstance(a, OnnxArtifact)),
        )
        if scheme is not None
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


def making_stages(
    recipe: Recipe, artifact: TorchArtifact, machine: Machine, digests: DigestCache
) -> tuple[Stage, ...]:
    """The stages that bring an artifact about: calibration for one that is quantized, none for an export."""
    name, batch_tokens = artifact.name, recipe.runtime.batch_tokens
    if isinstance(artifact, ImportArtifact):
        key = f"artifacts[{recipe.artifacts.index(artifact)}].import"
        return (import_stage(recipe, key, artifact.path, name, digests, machine, stage=f"assemble:{name}"),)
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
    keep, choosing = keeps(recipe, artifact), assigning_stages(recipe, artifact, machine)
    assigned = {ASSIGNMENT: choosing[-1].name} if choosing else {}
    refine = Stage(
        name=f"refine:{name}",
        function="quantflow.quantize.refine:run",
        params=RefineParams(
            scheme=scheme,
            keep=keep,
            device=machine.device,
            calibration_dtype=decide(recipe.runtime.calibration_dtype, machine).calibration_dtype,
            batch_tokens=batch_tokens,
        ),
        inputs={"source": "source", "data": "data", "codes": "quantize", **assigned},
        on_device=True,
        artifact=name,
        resumable=True,
    )
    assemble = Stage(
        name=f"assemble:{name}",
        function="quantflow.formats.assemble:run",
        params=AssembleParams(
            name=name,
            format=artifact.format,
            scheme=scheme,
            keep=keep,
            written=bool(assigned) and not refines,
        ),
        inputs={"source": "source", "codes": refine.name if refines else "quantize", **assigned},
        artifact=name,
    )
    mark = next((where.mark for where in measured_in(recipe, machine) if where.runtime is TORCH), None)
    yardstick = Stage(
        name=f"yardstick:{name}",
        function="quantflow.measure.yardstick:run",
        params=YardstickParams(
            bits=scheme.bits,
            group_size=scheme.group_size,
            symmetric=scheme.symmetric,
            keep=keep,
            device=machine.device,
            batch_tokens=batch_tokens,
        ),
        inputs={"source": "source", "data": "data", "baseline": f"baseline{mark}", **assigned},
        on_device=True,
        artifact=name,
        resumable=True,
    )
    return (
        *choosing,
        *((refine,) if refines else ()),
        assemble,
        # Rounding to nearest is its own yardstick; codes without an artifact can be run in torch only.
        *((yardstick,) if scheme.method != "rtn" and mark is not None else ()),
    )
