"""The margins that a gate holds an artifact to: the recipe's own, or the defaults for its bits."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from quantflow.recipe.artifacts import HALF_BITS, Artifact

if TYPE_CHECKING:  # schema.py quotes the defaults below in its descriptions
    from quantflow.recipe.schema import Recipe

# 8 bits are expected to be indistinguishable in use. With 4 bits in groups of 128, published perplexities of
# LLaMA-7B and 13B rise by 2 to 3 %: what costs more is a quantization gone wrong or a model too small for it.
# An export to 16 bits only rounds: to bfloat16, the coarser one, it moved a model of 135 million parameters
# by 0.03 % in perplexity and 6e-5 in KL. Some times that leaves room for noise and none for a mistake.
# Fewer bits than 4 are held to what 4 may lose: they cost more, and whether a use can bear it is for its
# recipe to say.
DEFAULT_MAX_INCREASE = {16: 0.001, 8: 0.01, 4: 0.03, 3: 0.03, 2: 0.03}
# Nats per token. llama.cpp publishes, on Llama-3-8B, 0.031 for its usual 4-bit format (q4_K_M) and 0.0014 for
# 8 bits (q8_0), which must not pass for lossless.
DEFAULT_MAX_MEAN_KL = {16: 0.0005, 8: 0.05, 4: 0.05, 3: 0.05, 2: 0.05}


@dataclass(frozen=True)
class Margins:
    """What an artifact may lose.

    Attributes:
        max_increase: Largest relative increase of perplexity over the baseline, a fraction.
        max_mean_kl: Largest mean KL divergence from the baseline, nats per token.
    """

    max_increase: float
    max_mean_kl: float


def margins(recipe: "Recipe", artifact: Artifact) -> Margins:
    """Resolve the margins for one artifact: what the recipe says, else the default for its bits.

    A recipe's margins are chosen for what it quantizes. They may tighten those of a lossless export that
    stands beside it, and never widen them: what a rollback returns to has to be the model.
    """
    return Margins(
        max_increase=_margin(recipe.gate.perplexity.max_increase, DEFAULT_MAX_INCREASE, artifact.bits),
        max_mean_kl=_margin(recipe.gate.kl.max_mean, DEFAULT_MAX_MEAN_KL, artifact.bits),
    )


def by_bits(defaults: Mapping[int, float]) -> str:
    """Defaults as a description tells them: `0.03 for 2 to 4 bits, 0.01 for 8 bits`."""
    told = []
    for margin, entries in groupby(sorted(defaults.items()), key=lambda entry: entry[1]):
        widths = [bits for bits, _ in entries]
        told.append(f"{margin} for {' to '.join(map(str, dict.fromkeys((widths[0], widths[-1]))))} bits")
    return ", ".join(told)


def _margin(asked: float | None, defaults: Mapping[int, float], bits: int) -> float:
    default = defaults[bits]
    if asked is None:
        return default
    return min(asked, default) if bits == HALF_BITS else asked
