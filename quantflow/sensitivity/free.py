"""The units of an artifact whose precision is to be chosen: all but those that the recipe keeps."""

from dataclasses import dataclass
from pathlib import Path

from quantflow.model.units import FORCE_KEY, named_units, require_disjoint
from quantflow.sensitivity.assign import Choice, chosen_rungs
from quantflow.sensitivity.choosing import Choosing
from quantflow.sensitivity.kept import Precisions
from quantflow.sensitivity.ladder import UnitLadder, fixed, ladders
from quantflow.sensitivity.making import Maker
from quantflow.sensitivity.record import load_scan


@dataclass(frozen=True)
class Free:
    """What there is to choose.

    Attributes:
        units: The units' ladders, in the order of the model; one rung alone where the recipe forces a unit.
        kept: Units that the recipe keeps.
        forced: Units that the recipe forces.
        source: The last rung: what units that stay as they are are stored in.
    """

    units: tuple[UnitLadder, ...]
    kept: frozenset[str]
    forced: frozenset[str]
    source: str

    @property
    def weights(self) -> int:
        """Weights that the artifact would quantize if nothing were spared."""
        return sum(unit.weights for unit in self.units)

    def precisions(self, choice: Choice) -> Precisions:
        """The assignment that a choice is."""
        rungs = zip(self.units, chosen_rungs(self.units, choice), strict=True)
        chosen = {unit.unit: rung.precision for unit, rung in rungs}
        return Precisions(self.source, dict.fromkeys(sorted(self.kept), self.source) | chosen)


def find_free(choosing: Choosing, maker: Maker, scan: Path) -> Free:
    """Look up what a recipe's patterns mean, and the scan's scores of all other units.

    Args:
        choosing: The artifact.
        maker: Writes it.
        scan: Output of the scan stage.

    Raises:
        RecipeError: A pattern means no unit, or a unit is both kept and forced.
        QuantizationError: A score is missing or no finite number.
    """
    kept, source = maker.kept(), maker.source
    forced = named_units(choosing.force, maker.family, maker.blocks, FORCE_KEY)
    require_disjoint(kept, forced, FORCE_KEY)
    every = ladders(load_scan(scan), choosing.ladder, source, maker.shared)
    units = [unit for unit in every if unit.unit not in kept]
    return Free(fixed(units, quantized=forced), kept, forced, source)
