"""What a recipe says of the units of one artifact that are to be spared."""

from quantflow.recipe.artifacts import Artifact, is_quantized_here
from quantflow.recipe.onnx import OnnxArtifact
from quantflow.recipe.schema import Recipe
from quantflow.recipe.sensitivity import Assigning


def assigning(recipe: Recipe, artifact: Artifact) -> Assigning | None:
    """How units of an artifact are chosen: its own section, else the recipe's; None where none are."""
    if is_quantized_here(artifact) or (isinstance(artifact, OnnxArtifact) and artifact.has_codes):
        return artifact.sensitivity or recipe.sensitivity
    return None


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
