"""The margins that a gate holds an artifact to: the recipe's own, or the defaults for its bits."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # schema.py quotes the defaults below in its descriptions
    from quantflow.recipe.schema import Artifact, Recipe

# 8 bits are expected to be indistinguishable in use. With 4 bits in groups of 128, published perplexities of
# LLaMA-7B and 13B rise by 2 to 3 %: what costs more is a quantization gone wrong or a model too small for it.
DEFAULT_MAX_INCREASE = {8: 0.01, 4: 0.03}
# Nats per token. llama.cpp publishes 0.031 for its usual 4-bit format (q4_K_M) on Llama-3-8B.
DEFAULT_MAX_MEAN_KL = 0.05


@dataclass(frozen=True)
class Margins:
    """What an artifact may lose.

    Attributes:
        max_increase: Largest relative increase of perplexity over the baseline, a fraction.
        max_mean_kl: Largest mean KL divergence from the baseline, nats per token.
    """

    max_increase: float
    max_mean_kl: float


def margins(recipe: "Recipe", artifact: "Artifact") -> Margins:
    """Resolve the margins for one artifact: what the recipe says, else the default for its bits."""
    increase, mean_kl = recipe.gate.perplexity.max_increase, recipe.gate.kl.max_mean
    return Margins(
        max_increase=DEFAULT_MAX_INCREASE[artifact.bits] if increase is None else increase,
        max_mean_kl=DEFAULT_MAX_MEAN_KL if mean_kl is None else mean_kl,
    )
