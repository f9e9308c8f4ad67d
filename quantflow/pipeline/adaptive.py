"""Whether a recipe's artifacts are measured look by look, and what cannot be."""

from quantflow.errors import RecipeError
from quantflow.pipeline.importing import runs_as_graph
from quantflow.recipe.margins import open_defaults
from quantflow.recipe.schema import Recipe


def look_seed(recipe: Recipe) -> int | None:
    """Seed of the order of documents; None where they are measured in one go.

    Raises:
        RecipeError: The recipe asks for a criterion or a runtime that looking early is not valid or not made
            for.
    """
    if recipe.gate.evaluation == "fixed":
        return None
    gate = recipe.gate
    refused = {
        "gate.kl.max_p99": gate.kl.max_p99 is not None,
        "gate.kl.min_top1_agreement": gate.kl.min_top1_agreement is not None,
        "gate.perplexity.slices": bool(gate.perplexity.slices),
        "gate.kl.slices": bool(gate.kl.slices),
        "gate.against": gate.against is not None,
        "gate.require: L1": gate.require == "L1",
        "runtime.name: vllm": recipe.runtime.name != "torch",
        "an import held to default margins": any(open_defaults(recipe, one) for one in recipe.artifacts),
        "artifacts in ONNX": any(runs_as_graph(recipe, one) for one in recipe.artifacts),
    }
    asked = [name for name, is_asked in refused.items() if is_asked]
    if asked:
        raise RecipeError(
            f"measuring may stop early for perplexity and mean KL in torch only, not with {', '.join(asked)}",
            where="gate.evaluation",
            hint="Remove them, or say evaluation: fixed.",
        )
    return recipe.data.seed
