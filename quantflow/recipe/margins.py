"""The margins that a gate holds an artifact to: the recipe's own, or the defaults for its bits."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from quantflow.gate.margins import DEFAULT_MAX_INCREASE, DEFAULT_MAX_MEAN_KL, MarginName, default_margin
from quantflow.recipe.artifacts import HALF_BITS, Artifact, ImportArtifact

if TYPE_CHECKING:  # schema.py quotes defaults in its descriptions
    from quantflow.recipe.schema import Recipe


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
    Of an import nothing is known before it is looked at: its defaults stand for the tightest ones until then.
    """
    asked = _asked(recipe)
    # What somebody else made without quantizing it need not be this model, and a recipe may allow for that.
    only_narrower = artifact.bits == HALF_BITS and not isinstance(artifact, ImportArtifact)

    def of(name: MarginName, defaults: Mapping[int, float]) -> float:
        default, own = default_margin(defaults, artifact.bits), asked[name]
        return default if own is None else min(own, default) if only_narrower else own

    return Margins(
        max_increase=of("max_increase", DEFAULT_MAX_INCREASE),
        max_mean_kl=of("max_mean_kl", DEFAULT_MAX_MEAN_KL),
    )


def open_defaults(recipe: "Recipe", artifact: Artifact) -> tuple[MarginName, ...]:
    """Margins that the recipe leaves to a default which hangs on what an import turns out to be."""
    if not isinstance(artifact, ImportArtifact):
        return ()
    return tuple(name for name, own in _asked(recipe).items() if own is None)


def _asked(recipe: "Recipe") -> Mapping[MarginName, float | None]:
    return {
        "max_increase": recipe.gate.perplexity.max_increase,
        "max_mean_kl": recipe.gate.kl.max_mean,
    }


def by_bits(defaults: Mapping[int, float]) -> str:
    """Defaults as a description tells them: `0.03 for 2 to 4 bits, 0.01 for 8 bits`."""
    told = []
    for margin, entries in groupby(sorted(defaults.items()), key=lambda entry: entry[1]):
        widths = [bits for bits, _ in entries]
        told.append(f"{margin} for {' to '.join(map(str, dict.fromkeys((widths[0], widths[-1]))))} bits")
    return ", ".join(told)
