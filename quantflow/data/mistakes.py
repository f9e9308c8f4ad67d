"""Lines that cannot be used: refused with the first of them named, or skipped and counted."""

from collections.abc import Sequence
from typing import Literal

from quantflow.data.record import Mistake
from quantflow.errors import DataError

MAX_MISTAKES = 5
"""Mistakes shown at once: enough to see a pattern, few enough to read."""

_LOOK_AHEAD = 10_000
"""Documents after a first mistake within which further ones are looked for, so that one at the beginning of a
large file is told at once."""

_HINT = (
    "Mend them, name other fields in data.fields, or set data.invalid to skip, which leaves them out and "
    "counts them."
)


class Mistakes:
    """Collects mistakes.

    Args:
        policy: The recipe's `data.invalid`.

    Attributes:
        undecodable: Lines skipped whose bytes are no text in the file's encoding.
        invalid: Lines skipped for any other reason.
        first: The first of them.
    """

    def __init__(self, policy: Literal["refuse", "skip"]) -> None:
        self.undecodable = 0
        self.invalid = 0
        self.first: list[Mistake] = []
        self._refuses = policy == "refuse"
        self._passed = 0

    @property
    def found(self) -> bool:
        """Whether the run will be refused."""
        return self._refuses and bool(self.first)

    def add(self, mistake: Mistake, *, counted: bool = True) -> None:
        """Take one.

        Args:
            mistake: It.
            counted: Whether to count it; False where the draw does, which may yet drop it.

        Raises:
            DataError: It is the fifth, and mistakes are refused.
        """
        self.undecodable += counted and mistake.undecodable
        self.invalid += counted and not mistake.undecodable
        if len(self.first) < MAX_MISTAKES:
            self.first.append(mistake)
        if self._refuses and len(self.first) == MAX_MISTAKES:
            self.close()

    def passed(self) -> None:
        """Take note of a document without a mistake.

        Raises:
            DataError: So many came after a mistake that looking for more is not worth it.
        """
        if self.found:
            self._passed += 1
            if self._passed >= _LOOK_AHEAD:
                self.close()

    def close(self) -> None:
        """End the search.

        Raises:
            DataError: There were mistakes, and they are refused.
        """
        if self.found:
            raise _refusal(self.first)


def _refusal(mistakes: Sequence[Mistake]) -> DataError:
    first = mistakes[0]
    if len(mistakes) == 1:
        return DataError(first.message, where=first.where, hint=_HINT.replace("them", "it", 1))
    more = " first" if len(mistakes) == MAX_MISTAKES else ""
    lines = "".join(f"\n  {mistake.where}: {mistake.message}" for mistake in mistakes)
    return DataError(f"lines cannot be used; the{more} {len(mistakes)}:{lines}", hint=_HINT)
