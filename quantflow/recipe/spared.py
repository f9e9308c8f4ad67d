"""What a recipe says of the units of one artifact that are to be spared."""

from collections.abc import Sequence

from quantflow.recipe.artifacts import Artifact, is_quantized_here
from quantflow.recipe.onnx import OnnxArtifact
from quantflow.recipe.schema import Recipe
from quantflow.recipe.sensitivity import DEFAULT_MAX_SPARED, Assigning


def assigning(recipe: Recipe, artifact: Artifact) -> Assigning | None:
    """How units of an artifact are chosen: its own section, else the recipe's; None where none are."""
    if is_quantized_here(artifact) or (isinstance(artifact, OnnxArtifact) and artifact.has_codes):
        return artifact.sensitivity or recipe.sensitivity
    return None


def most_spared(found: Assigning, ladder: Sequence[str]) -> float | None:
    """Largest share of the weights that may be spared; None is no limit.

    A rung between the artifact's own and the last takes speed and no bytes: limited by bytes alone, every
    unit would come to it. There `max_spared` holds beside bytes, at its default if the recipe gives none.

    Args:
        found: How units are chosen.
        ladder: Precisions of a unit, the source's dtype left out.
    """
    return DEFAULT_MAX_SPARED if found.spared is None and len(ladder) > 1 else found.spared


def assigns(recipe: Recipe) -> bool:
    """Whether units of any artifact that is measured in torch are chosen."""
    return any(
        is_quantized_here(artifact) and assigning(recipe, artifact) is not None
        for artifact in recipe.artifacts
    )


def searches(recipe: Recipe) -> bool:
    """Whether any artifact is searched for."""
    found = (assigning(recipe, artifact) for artifact in recipe.artifacts)
    return any(section is not None and section.until is not None for section in found)
