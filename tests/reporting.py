"""A reporter that remembers, for tests of stages."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from quantflow.pipeline.events import Event


@dataclass
class RecordingReporter:
    """Keeps events and how far each tracked piece of work came."""

    events: list[Event] = field(default_factory=list)
    progress: dict[str, tuple[int, int]] = field(default_factory=dict)
    progress_folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp()))

    def event(self, code: str, message: str, **detail: JsonValue) -> None:
        self.events.append(Event(code=code, stage="test", message=message, detail=detail))

    def keep(self, write: Callable[[], None]) -> bool:
        write()
        return True

    @contextmanager
    def track(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        self.progress[what] = (0, total)

        def advance(steps: int) -> None:
            self.progress[what] = (self.progress[what][0] + steps, total)

        yield advance

    def codes(self) -> list[str]:
        return [event.code for event in self.events]
