"""The stage that scores units, as a recipe asks for it."""

from quantflow.errors import RecipeError
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.stage import Stage
from quantflow.quantize.params import Scheme
from quantflow.recipe.artifacts import QuantizedArtifact, is_quantized_here
from quantflow.recipe.onnx import OnnxArtifact
from quantflow.recipe.schema import Recipe
from quantflow.recipe.scheme import scheme_of
from quantflow.recipe.sensitivity import DEFAULT_MAX_SPARED, Assigning
from quantflow.recipe.spared import assigning, most_spared
from quantflow.sensitivity.params import DEFAULT_TOKENS, ChoiceParams, ScanParams, ladder_of
from quantflow.sensitivity.sizes import LEAST_WINDOWS, TOO_FEW_HINT, TOO_FEW_WINDOWS

SCAN = "scan"


def scan_stage(recipe: Recipe, machine: Machine) -> Stage | None:
    """One scan in the schemes of all artifacts, as one pass serves them all; None where none is quantized.

    It serves `quantflow scan` as well, which needs no section `sensitivity`.
    """
    quantized = [artifact for artifact in recipe.artifacts if is_quantized_here(artifact)]
    schemes = {scheme.id: scheme for scheme in map(scheme_of, quantized)}
    if not schemes:
        return None
    if recipe.data.calibration.windows < LEAST_WINDOWS:
        raise RecipeError(
            TOO_FEW_WINDOWS,
            where="data.calibration.windows",
            hint=TOO_FEW_HINT,
        )
    return Stage(
        name=SCAN,
        function="quantflow.sensitivity.scan:run",
        params=ScanParams(
            precisions=tuple(scheme for _, scheme in sorted(schemes.items())),
            method=recipe.sensitivity.method if recipe.sensitivity else "auto",
            tokens=recipe.sensitivity.tokens if recipe.sensitivity else DEFAULT_TOKENS,
            choices=tuple(
                dict.fromkeys(_choice(recipe, artifact, scheme_of(artifact)) for artifact in quantized)
            ),
            device=machine.device,
            batch_tokens=recipe.runtime.batch_tokens,
        ),
        inputs={"source": "source", "data": "data", "codes": "quantize"},
        on_device=True,
        resumable=True,
    )


def graph_scan(recipe: Recipe, artifact: OnnxArtifact, scheme: Scheme, codes: str, machine: Machine) -> Stage:
    """The scan of an ONNX artifact's own INT8 values.

    Args:
        recipe: A loaded recipe.
        artifact: One of its artifacts.
        scheme: Of its values.
        codes: Stage that made them.
        machine: Where it will run.
    """
    return Stage(
        name=f"{SCAN}:{artifact.name}",
        function="quantflow.sensitivity.scan:run",
        params=ScanParams(
            precisions=(scheme,),
            weights_only=len(ladder_of(scheme)) > 1,
            method=recipe.sensitivity.method if recipe.sensitivity else "auto",
            tokens=recipe.sensitivity.tokens if recipe.sensitivity else DEFAULT_TOKENS,
            choices=(_choice(recipe, artifact, scheme),),
            device=machine.device,
            batch_tokens=recipe.runtime.batch_tokens,
        ),
        inputs={"source": "source", "data": "data", "codes": codes},
        on_device=True,
        artifact=artifact.name,
        resumable=True,
    )


def _choice(recipe: Recipe, artifact: QuantizedArtifact | OnnxArtifact, scheme: Scheme) -> ChoiceParams:
    """What an artifact does with the scores; a search may come to all that it is allowed to spare."""
    found = assigning(recipe, artifact) or Assigning()
    # What other tensors take is known when the artifact is assigned: the default is as good a guess of a cut.
    unknown = found.until is not None or (found.max_bytes is not None and found.effective_bits is None)
    ladder = ladder_of(scheme)
    return ChoiceParams(
        precisions=ladder,
        policy=found.policy,
        max_spared=DEFAULT_MAX_SPARED if unknown and found.max_spared is None else most_spared(found, ladder),
        effective_bits=found.effective_bits,
        threshold=found.threshold,
        top_k=found.top_k,
        keep=(*artifact.keep, *(recipe.sensitivity.keep if recipe.sensitivity else ())),
        force=recipe.sensitivity.force if recipe.sensitivity else (),
    )
