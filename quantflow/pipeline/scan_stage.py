"""The stages that score units, as a recipe asks for it."""

from collections.abc import Mapping, Sequence

from quantflow.errors import RecipeError
from quantflow.formats.onnx.params import OnnxAssembleParams
from quantflow.formats.params import AssembleParams
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.stage import Stage
from quantflow.quantize.params import Scheme
from quantflow.recipe.artifacts import QuantizedArtifact, is_quantized_here
from quantflow.recipe.onnx import OnnxArtifact
from quantflow.recipe.schema import Recipe
from quantflow.recipe.scheme import scheme_of
from quantflow.recipe.sensitivity import DEFAULT_MAX_SPARED, Assigning
from quantflow.recipe.spared import assigning, most_spared
from quantflow.sensitivity.params import (
    DEFAULT_TOKENS,
    ChoiceParams,
    ScanParams,
    SettleParams,
    ladder_of,
)
from quantflow.sensitivity.record import ScanMethod
from quantflow.sensitivity.sizes import LEAST_WINDOWS, TOO_FEW_HINT, TOO_FEW_WINDOWS

SCAN, SETTLE = "scan", "settle"


def scan_stages(recipe: Recipe, machine: Machine) -> tuple[Stage, ...]:
    """One scan in the schemes of all artifacts, as one pass serves them all; none where none is quantized.

    They serve `quantflow scan` as well, which needs no section `sensitivity`.
    """
    quantized = [artifact for artifact in recipe.artifacts if is_quantized_here(artifact)]
    schemes = {scheme.id: scheme for scheme in map(scheme_of, quantized)}
    if not schemes:
        return ()
    if recipe.data.calibration.windows < LEAST_WINDOWS:
        raise RecipeError(
            TOO_FEW_WINDOWS,
            where="data.calibration.windows",
            hint=TOO_FEW_HINT,
        )
    choices = [
        _choice(
            recipe,
            one,
            AssembleParams(name=one.name, format=one.format, scheme=scheme_of(one)),
            ladder_of(scheme_of(one)),
        )
        for one in quantized
    ]
    precisions = tuple(scheme for _, scheme in sorted(schemes.items()))
    return _stages(recipe, machine, precisions, choices, {"codes": "quantize"})


def graph_scan_stages(
    recipe: Recipe,
    artifact: OnnxArtifact,
    scheme: Scheme,
    assemble: OnnxAssembleParams,
    inputs: Mapping[str, str],
    machine: Machine,
) -> tuple[Stage, ...]:
    """The scan of an ONNX artifact's own INT8 values.

    Args:
        recipe: A loaded recipe.
        artifact: One of its artifacts.
        scheme: Of its values.
        assemble: How it is written.
        inputs: `codes` and `base` → the stages that made them.
        machine: Where it will run.
    """
    choice = _choice(recipe, artifact, assemble, ladder_of(scheme))
    return _stages(recipe, machine, (scheme,), [choice], inputs, artifact.name)


def scores_stage(recipe: Recipe, artifact: str = "") -> str:
    """Name of the stage that units are chosen by.

    Args:
        recipe: A loaded recipe.
        artifact: Name of one that is scanned by itself; empty for the scan that others share.
    """
    kind = SETTLE if _method(recipe) == "auto" else SCAN
    return f"{kind}:{artifact}" if artifact else kind


def _method(recipe: Recipe) -> ScanMethod:
    return recipe.sensitivity.method if recipe.sensitivity else "auto"


def _stages(
    recipe: Recipe,
    machine: Machine,
    precisions: tuple[Scheme, ...],
    choices: Sequence[ChoiceParams],
    inputs: Mapping[str, str],
    artifact: str = "",
) -> tuple[Stage, ...]:
    """The scan and, of method `auto`, what settles its estimates: that alone hangs on what they are for."""
    method, mark = _method(recipe), f":{artifact}" if artifact else ""
    params = ScanParams(
        precisions=precisions,
        weights_only=any(len(ladder_of(scheme)) > 1 for scheme in precisions),
        method="fisher" if method == "auto" else method,
        tokens=recipe.sensitivity.tokens if recipe.sensitivity else DEFAULT_TOKENS,
        device=machine.device,
        batch_tokens=recipe.runtime.batch_tokens,
    )
    given = {"source": "source", "data": "data", "codes": inputs["codes"]}
    scan = Stage(
        name=f"{SCAN}{mark}",
        function="quantflow.sensitivity.scan:run",
        params=params,
        inputs=given,
        on_device=True,
        artifact=artifact,
        resumable=True,
    )
    if method != "auto":
        return (scan,)
    settle = Stage(
        name=f"{SETTLE}{mark}",
        function="quantflow.sensitivity.settle_stage:run",
        params=SettleParams(scan=params, choices=tuple(dict.fromkeys(choices))),
        inputs={**given, **inputs, SCAN: scan.name},
        on_device=True,
        artifact=artifact,
        resumable=True,
    )
    return (scan, settle)


def _choice(
    recipe: Recipe,
    artifact: QuantizedArtifact | OnnxArtifact,
    assemble: AssembleParams | OnnxAssembleParams,
    ladder: tuple[str, ...],
) -> ChoiceParams:
    """What an artifact does with the scores; a search may come to all that it is allowed to spare."""
    found = assigning(recipe, artifact) or Assigning()
    # A search may spare any share up to its limit: the limit is as good a guess of where it stops as another.
    searched = found.until is not None and found.max_spared is None
    return ChoiceParams(
        precisions=ladder,
        policy=found.policy,
        max_spared=DEFAULT_MAX_SPARED if searched else most_spared(found, ladder),
        effective_bits=found.effective_bits,
        max_bytes=found.max_bytes,
        sized=None if found.max_bytes is None else assemble,
        threshold=found.threshold,
        top_k=found.top_k,
        keep=(*artifact.keep, *(recipe.sensitivity.keep if recipe.sensitivity else ())),
        force=recipe.sensitivity.force if recipe.sensitivity else (),
        graph=isinstance(artifact, OnnxArtifact),
    )
