"""What QuantFlow's stages tell, printed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Printing:
    """A reporter whose lines go to the log."""

    def __init__(self, progress_folder: Path) -> None:
        """Keep what lets a stage go on in a folder of its own."""
        self.progress_folder = progress_folder
        progress_folder.mkdir(parents=True, exist_ok=True)

    def event(self, code: str, message: str, **detail: object) -> None:
        """Print an event."""
        print(f"event {code}: {message} {detail}", flush=True)

    def keep(self, write: Callable[[], None]) -> bool:
        """Keep progress, as every run does."""
        write()
        return True

    @contextmanager
    def track(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Say what begins."""
        print(f"{what} ({total})", flush=True)
        yield lambda steps: None
