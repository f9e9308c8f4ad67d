"""A reporter that remembers, for tests of stages."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue


@dataclass
class Recorder:
    events: dict[str, dict[str, JsonValue]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    progress: dict[str, tuple[int, int]] = field(default_factory=dict)
    """What is tracked → steps done, and steps announced."""
    progress_folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp()))

    def event(self, code: str, message: str, **detail: JsonValue) -> None:
        self.events[code] = detail
        self.messages.append(message)

    def keep(self, write: Callable[[], None]) -> bool:
        write()
        return True

    @contextmanager
    def track(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        self.progress[what] = (0, total)

        def advance(steps: int) -> None:
            self.progress[what] = (self.progress[what][0] + steps, total)

        yield advance
