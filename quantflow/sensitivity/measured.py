"""What a method found of every unit and precision, and what it cost: kept piece by piece on disk."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantflow.pipeline.events import Reporter
from quantflow.sensitivity.spent import added

Key = tuple[str, str]
"""Full name of a unit, e.g. `model.layers.0.qkv`, and the precision that it is swapped to."""

NOTHING = ("", "")
"""In the place of a unit: the stream in which nothing was swapped."""


@dataclass(frozen=True)
class Measured:
    """Scores before they are summed up.

    Attributes:
        sums: Unit and precision → nats summed over the scored positions of each window, [windows].
        forwards: Step → whole forwards over the text.
        no_ops: What changes nothing when it is swapped in.
        sizes: Unit and precision → bytes of the unit's weights in it.
        outputs: Unit and precision → KL between histograms of its outputs before and after, nats: on all
            text, on its first and on its second half.
    """

    sums: Mapping[Key, NDArray[np.float64]]
    forwards: Mapping[str, float]
    no_ops: frozenset[Key] = field(default=frozenset())
    sizes: Mapping[Key, int] = field(default_factory=dict)
    outputs: Mapping[Key, tuple[float, float, float]] = field(default_factory=dict)


def merged(parts: Iterable[Measured]) -> Measured:
    """What several passes found, together; of the same unit the last one's value."""
    found = list(parts)
    return Measured(
        sums={key: value for part in found for key, value in part.sums.items()},
        forwards=added(part.forwards for part in found),
        no_ops=frozenset[Key]().union(*(part.no_ops for part in found)),
        sizes={key: size for part in found for key, size in part.sizes.items()},
        outputs={key: value for part in found for key, value in part.outputs.items()},
    )


def keep_measured(path: Path, measured: Measured, reporter: Reporter) -> None:
    """Keep what a piece of work found, so that an interrupted scan need not do it again."""
    content = {
        "sums": [[*key, value.tolist()] for key, value in measured.sums.items()],
        "forwards": dict(measured.forwards),
        "no_ops": sorted(measured.no_ops),
        "sizes": [[*key, size] for key, size in measured.sizes.items()],
        "outputs": [[*key, *values] for key, values in measured.outputs.items()],
    }

    def write() -> None:
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(content), encoding="utf-8")
        partial.replace(path)

    reporter.keep(write)


def kept_measured(path: Path) -> Measured | None:
    """What `keep_measured` kept; None where there is nothing usable."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Measured(
        sums={(unit, precision): np.asarray(value) for unit, precision, value in content["sums"]},
        forwards=content["forwards"],
        no_ops=frozenset((unit, precision) for unit, precision in content["no_ops"]),
        sizes={(unit, precision): size for unit, precision, size in content["sizes"]},
        outputs={(unit, precision): (a, b, c) for unit, precision, a, b, c in content["outputs"]},
    )
