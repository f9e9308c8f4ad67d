"""What a search remembers of each round that is done, so that one killed in any round goes on from it."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from quantflow.sensitivity.assignment import MixKl, RoundCriterion


class Round(BaseModel):
    """One candidate.

    Attributes:
        point: Its place on the frontier.
        mix: What was measured.
        criteria: The gate's criteria on the selection documents.
        strain: How many times its margin the worst criterion's bound is; infinite where it has none.
        seconds: Wall time that it took, in the run that finished it.
    """

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    point: int
    mix: MixKl
    criteria: tuple[RoundCriterion, ...]
    strain: float
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether all criteria hold with room."""
        return all(criterion.holds for criterion in self.criteria)


def best_round(rounds: list[Round]) -> int:
    """The candidate nearest to its margins; of equal ones that of least KL, and the first of these."""
    return min(range(len(rounds)), key=lambda number: (rounds[number].strain, rounds[number].mix.kl))


class RoundRecords:
    """A small file for each round.

    Args:
        folder: Where they are kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, number: int, done: Round) -> None:
        """Remember a round; the file appears complete or not at all."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(number)
        partial = path.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as file:
            file.write(done.model_dump_json())
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)

    def load(self) -> list[Round]:
        """All rounds that are done, from the first on."""
        rounds: list[Round] = []
        while (path := self._path(len(rounds))).exists():
            rounds.append(Round.model_validate_json(path.read_text(encoding="utf-8")))
        return rounds

    def _path(self, number: int) -> Path:
        return self._folder / f"round-{number:03d}.json"
