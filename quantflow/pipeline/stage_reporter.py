"""The reporter that the runner gives to a stage: events outlive an interruption, progress may be lost."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pydantic import JsonValue, ValidationError

from quantflow.pipeline.deadline import Deadline
from quantflow.pipeline.events import Event
from quantflow.pipeline.storage import STORAGE_ERRORS
from quantflow.pipeline.store import Unfinished
from quantflow.pipeline.terminal import Terminal


class StageReporter:
    """Keeps a running stage's events, those before an interruption too, and passes all on to the terminal.

    Args:
        stage: The stage's name.
        terminal: Where events and progress are shown.
        unfinished: Where they are kept.
        deadline: Looked at with every step of progress.

    Attributes:
        progress_folder: As in `Reporter`.
        events: What the stage reported; stored with its output.
        noticed: What happened to this run and not to the output; not stored.
    """

    def __init__(self, stage: str, terminal: Terminal, unfinished: Unfinished, deadline: Deadline) -> None:
        self._stage = stage
        self._terminal = terminal
        self._file = unfinished.events
        self._deadline = deadline
        self.progress_folder = unfinished.progress
        self.events: list[Event] = []
        self.noticed: list[Event] = []
        if self._file.exists():
            for line in self._file.read_text(encoding="utf-8").splitlines():
                with suppress(ValidationError):  # the last line may have been cut
                    self.events.append(Event.model_validate_json(line))

    def event(self, code: str, message: str, **detail: JsonValue) -> None:
        """Show an event and keep it, unless it was told before an interruption already."""
        event = Event(code=code, stage=self._stage, message=message, detail=detail)
        if event in self.events:  # told before the interruption, and again on the way to where it was
            return
        self.events.append(event)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(event.model_dump_json() + "\n")
        self._terminal.event(event)

    def keep(self, write: Callable[[], None]) -> bool:
        """Keep progress where the disk takes it."""
        try:
            write()
        except OSError as error:
            if error.errno not in STORAGE_ERRORS:
                raise
            if not self.noticed:
                event = Event(
                    code="progress-not-kept",
                    stage=self._stage,
                    message=f"Progress of {self._stage} cannot be kept ({error.strerror}): the result is the "
                    "same, but an interruption would cost more.",
                    detail={"folder": self.progress_folder.name, "reason": error.strerror},
                )
                self.noticed.append(event)
                self._terminal.event(event)
            return False
        return True

    @contextmanager
    def track(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show progress; the deadline is looked at with every step."""
        with self._terminal.track(what, total) as advance:

            def advance_in_time(steps: int) -> None:
                advance(steps)
                self._deadline.check()

            yield advance_in_time
