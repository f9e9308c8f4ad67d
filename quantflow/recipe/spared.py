"""What a recipe says of the units of one artifact that are to be spared."""

from quantflow.recipe.artifacts import Artifact, is_quantized_here
from quantflow.recipe.schema import Recipe
from quantflow.recipe.sensitivity import Assigning


def assigning(recipe: Recipe, artifact: Artifact) -> Assigning | None:
    """How units of an artifact are chosen: its own section, else the recipe's; None where none are."""
    if not is_quantized_here(artifact):
        return None
    return artifact.sensitivity or recipe.sensitivity


def assigns(recipe: Recipe) -> bool:
    """Whether units of any artifact are chosen."""
    return any(assigning(recipe, artifact) is not None for artifact in recipe.artifacts)
