"""From a recipe's gate to the parameters of the gate stage of one artifact."""

from quantflow.gate.params import GateParams, SliceMargin
from quantflow.pipeline.adaptive import look_seed
from quantflow.pipeline.asked import asked_of
from quantflow.pipeline.serving import memory_margins, speed_margin
from quantflow.recipe.artifacts import Artifact, ImportArtifact
from quantflow.recipe.margins import margins, open_defaults
from quantflow.recipe.schema import Recipe


def gate_params(recipe: Recipe, artifact: Artifact) -> GateParams:
    """Everything that one artifact is held to.

    Args:
        recipe: A loaded recipe.
        artifact: One of its artifacts.
    """
    limits, perplexity, kl = margins(recipe, artifact), recipe.gate.perplexity, recipe.gate.kl
    return GateParams(
        artifact=artifact.name,
        defaults=open_defaults(recipe, artifact),
        max_increase=limits.max_increase,
        max_mean_kl=limits.max_mean_kl,
        perplexity_required=perplexity.required,
        perplexity_slices=tuple(
            SliceMargin(slice=entry.slice, margin=entry.max_increase, required=entry.required)
            for entry in perplexity.slices
        ),
        kl_required=kl.required,
        kl_slices=tuple(
            SliceMargin(slice=entry.slice, margin=entry.max_mean, required=entry.required)
            for entry in kl.slices
        ),
        max_p99=kl.max_p99,
        min_top1_agreement=kl.min_top1_agreement,
        require=recipe.gate.require,
        speed=speed_margin(recipe),
        memory=memory_margins(recipe),
        census_required=recipe.gate.census.required,
        look_seed=look_seed(recipe),
        asked=asked_of(recipe),
    )


def margin_inputs(artifact: Artifact) -> dict[str, str]:
    """What the gate stage needs to know margins by: role → stage."""
    return {"assemble": f"assemble:{artifact.name}"} if isinstance(artifact, ImportArtifact) else {}
