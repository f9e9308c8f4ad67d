"""A part of a stage that keeps progress of its own, beside other parts that work alike."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from pydantic import JsonValue

from quantflow.pipeline.events import Reporter


class PartReporter:
    """A reporter for one part of a stage; what one part kept is never taken for another's.

    Args:
        reporter: The stage's.
        name: The part's, a name for a folder.

    Attributes:
        progress_folder: Where the part keeps its progress.
    """

    def __init__(self, reporter: Reporter, name: str) -> None:
        self._reporter = reporter
        self.progress_folder = reporter.progress_folder / name
        self.progress_folder.mkdir(parents=True, exist_ok=True)

    def event(self, code: str, message: str, **detail: JsonValue) -> None:
        """As the stage's."""
        self._reporter.event(code, message, **detail)

    def keep(self, write: Callable[[], None]) -> bool:
        """As the stage's."""
        return self._reporter.keep(write)

    def track(self, what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """As the stage's."""
        return self._reporter.track(what, total)
