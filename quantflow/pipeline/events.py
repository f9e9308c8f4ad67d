"""What a stage tells the outside while it works: events and progress."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict, JsonValue


class Event(BaseModel):
    """Something that changed the result, or may have, without being asked for.

    Attributes:
        code: Stable name in kebab case, e.g. `gguf-dequantized`.
        stage: Name of the stage that raised it.
        message: One sentence for a reader of the report.
        detail: Figures and names behind the message.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    stage: str
    message: str
    detail: dict[str, JsonValue] = {}


class Reporter(Protocol):
    """How a running stage reports; given to every stage by the runner.

    Attributes:
        progress_folder: Where the stage keeps what lets it go on after an interruption, until it is finished.
    """

    progress_folder: Path

    def event(self, code: str, message: str, **detail: JsonValue) -> None:
        """Record an event of the running stage: shown at once and stored with its output."""

    def keep(self, write: Callable[[], None]) -> bool:
        """Let `write` put progress into the progress folder; whether it could.

        Progress is of use only after an interruption: where the disk does not take it, the run's event
        `progress-not-kept` says so once, and the stage goes on.
        """

    def track(self, what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Show progress over `total` steps of `what`; yields a function that advances by n steps."""
