"""What an assignment says to the stages after it: which units stay as they are. Read without torch."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from quantflow.model.families import Family
from quantflow.model.units import HEAD, kept_units

PRECISIONS_FILE = "precisions.json"
ASSIGNMENT = "assignment"
"""Role of the stage that an artifact's assignment comes from, where it has one."""


@dataclass(frozen=True)
class Precisions:
    """An assignment, without its reasons.

    Attributes:
        source: What units that stay as they are have, the source's dtype.
        units: Unit → its precision: the id of a scheme, or `source`.
    """

    source: str
    units: Mapping[str, str]

    @property
    def kept(self) -> frozenset[str]:
        """Units that stay as they are."""
        return self.having(self.source)

    def having(self, precision: str) -> frozenset[str]:
        """Units of a precision."""
        return frozenset(unit for unit, own in self.units.items() if own == precision)


def save_precisions(output: Path, precisions: Precisions) -> None:
    """Write `precisions.json`."""
    text = json.dumps(asdict(precisions), indent=1, sort_keys=True)
    (output / PRECISIONS_FILE).write_text(text + "\n", encoding="utf-8")


def load_precisions(stage_output: Path) -> Precisions:
    """Read what `save_precisions` wrote."""
    return Precisions(**json.loads((stage_output / PRECISIONS_FILE).read_text(encoding="utf-8")))


def units_kept(
    inputs: Mapping[str, Path], keep: Sequence[str], family: Family, blocks: int
) -> frozenset[str]:
    """Units of the blocks that an artifact keeps: as assigned, else as the recipe says.

    Args:
        inputs: Finished outputs of a stage's inputs by role.
        keep: Names or patterns of the recipe.
        family: The model's family.
        blocks: How many blocks it has.

    Raises:
        RecipeError: A pattern means no unit, or all are kept.
    """
    if ASSIGNMENT in inputs:
        return load_precisions(inputs[ASSIGNMENT]).kept - {HEAD}
    return kept_units(keep, family, blocks)
