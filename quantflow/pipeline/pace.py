"""How often a stage keeps its progress on disk: as often as that takes little of its time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

# Part of the time that may go into keeping progress: what is large, or the disk slow, is kept less often.
MAX_OVERHEAD = 0.05


class Pace:
    """Says when progress may be kept again; the first time always."""

    def __init__(self) -> None:
        self._kept_at = time.monotonic()
        self._cost = 0.0

    @property
    def due(self) -> bool:
        """Whether keeping, as dear as the last time, stays within `MAX_OVERHEAD` of the time since."""
        return self._cost <= MAX_OVERHEAD * (time.monotonic() - self._kept_at)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Progress is kept inside, or could not be, which costs its time as well."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._kept_at = time.monotonic()
            self._cost = self._kept_at - begun
