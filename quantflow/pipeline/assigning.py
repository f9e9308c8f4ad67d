"""The stages that choose which units of an artifact are spared, where a recipe asks for that."""

from collections.abc import Mapping

from quantflow.data.documents import MIN_DOCUMENTS
from quantflow.formats.params import AssembleParams
from quantflow.measure.params import BaselineParams
from quantflow.pipeline.deadline import parse_duration
from quantflow.pipeline.gate_params import gate_params
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.scan_stage import SCAN, scores_stage
from quantflow.pipeline.stage import Stage
from quantflow.recipe.artifacts import Artifact, QuantizedArtifact
from quantflow.recipe.onnx import OnnxArtifact
from quantflow.recipe.schema import Recipe
from quantflow.recipe.scheme import scheme_of
from quantflow.recipe.sensitivity import DEFAULT_MAX_ROUNDS, DEFAULT_MAX_SPARED, Assigning
from quantflow.recipe.spared import assigning, most_spared, searches
from quantflow.sensitivity.choosing import AssignParams, Choosing, SearchParams
from quantflow.sensitivity.kept import ASSIGNMENT
from quantflow.sensitivity.params import ladder_of

SELECTION_BASELINE = "baseline-selection"


def keeps(recipe: Recipe, artifact: QuantizedArtifact | OnnxArtifact) -> tuple[str, ...]:
    """Patterns of the units that an artifact keeps whatever they cost."""
    return (*artifact.keep, *(recipe.sensitivity.keep if recipe.sensitivity else ()))


def forces(recipe: Recipe) -> tuple[str, ...]:
    """Patterns of the units that are quantized whatever they cost."""
    return recipe.sensitivity.force if recipe.sensitivity else ()


def least_documents(recipe: Recipe) -> int:
    """Selection documents that are needed: a search judges on them as the gate does on its own."""
    return MIN_DOCUMENTS if searches(recipe) else 1


def selection_baseline(recipe: Recipe, machine: Machine) -> Stage:
    """The lossless model on the selection documents, which choices are held against.

    It comes before anything is calibrated: where a search has too few documents, that is refused there.
    """
    return Stage(
        name=SELECTION_BASELINE,
        function="quantflow.measure.baseline:run",
        params=BaselineParams(
            device=machine.device,
            batch_tokens=recipe.runtime.batch_tokens,
            split="selection",
            min_documents=least_documents(recipe),
        ),
        inputs={"source": "source", "data": "data"},
        on_device=True,
        resumable=True,
    )


def assigning_stages(recipe: Recipe, artifact: QuantizedArtifact, machine: Machine) -> tuple[Stage, ...]:
    """The stages of one artifact, the one that its assignment comes from last; none where none are chosen."""
    scheme = scheme_of(artifact)
    choosing = Choosing(
        assemble=AssembleParams(
            name=artifact.name, format=artifact.format, scheme=scheme, keep=keeps(recipe, artifact)
        ),
        force=forces(recipe),
        ladder=ladder_of(scheme),
        device=machine.device,
        batch_tokens=recipe.runtime.batch_tokens,
    )
    inputs = {
        "source": "source",
        "data": "data",
        "codes": "quantize",
        SCAN: scores_stage(recipe),
        "baseline": SELECTION_BASELINE,
    }
    return choosing_stages(recipe, artifact, choosing, inputs)


def choosing_stages(
    recipe: Recipe,
    artifact: Artifact,
    choosing: Choosing,
    inputs: Mapping[str, str],
    remedied: str | None = None,
) -> tuple[Stage, ...]:
    """The assign stage and, where the recipe asks for it, the search; none where no units are chosen.

    Args:
        recipe: A loaded recipe.
        artifact: One of its artifacts.
        choosing: What there is to choose.
        inputs: Role → stage, for both.
        remedied: Stage whose codes a search goes on with after the artifact with nothing spared; None for
            the same.
    """
    found = assigning(recipe, artifact)
    if found is None:
        return ()
    assign = Stage(
        name=f"assign:{artifact.name}",
        function="quantflow.sensitivity.assign_stage:run",
        params=_assign_params(found, choosing),
        inputs={**inputs, **({"codes": remedied} if remedied and found.until is None else {})},
        on_device=True,
        artifact=artifact.name,
        resumable=True,
    )
    if found.until is None:
        return (assign,)
    # What is judged by more than samples, a level of lossless by the noise floor for one, is for the gate.
    apart = {"speed": None, "memory": None, "require": None}
    gate = gate_params(recipe, artifact).model_copy(update=apart)
    search = Stage(
        name=f"search:{artifact.name}",
        function="quantflow.sensitivity.search_stage:run",
        params=SearchParams(
            choosing=choosing,
            gate=gate,
            max_spared=DEFAULT_MAX_SPARED if found.max_spared is None else found.max_spared,
            max_rounds=found.max_rounds or DEFAULT_MAX_ROUNDS,
            remedied=remedied is not None,
            time_limit=None
            if found.time_limit is None
            else parse_duration(found.time_limit, "sensitivity.time_limit"),
        ),
        inputs={
            **inputs,
            **({"codes": remedied} if remedied else {}),
            "inspect": "inspect",
            ASSIGNMENT: assign.name,
        },
        on_device=True,
        artifact=artifact.name,
        resumable=True,
    )
    return (assign, search)


def _assign_params(found: Assigning, choosing: Choosing) -> AssignParams:
    if found.until is not None:
        return AssignParams(choosing=choosing, policy="search")
    numbers = {
        "budget": {
            "max_spared": most_spared(found, choosing.ladder),
            "effective_bits": found.effective_bits,
            "max_bytes": found.max_bytes,
        },
        "threshold": {"threshold": found.threshold},
        "top_k": {"top_k": found.top_k},
    }
    return AssignParams(choosing=choosing, policy=found.policy, **numbers[found.policy])  # type: ignore[arg-type]
