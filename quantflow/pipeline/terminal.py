"""What a run shows while it works: bars for a person, dated lines in a log, nothing when quiet."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import IO, Protocol, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from quantflow.pipeline.events import Event

Advance = Callable[[int], None]
# Seconds between two progress lines in a log: often enough to see life, seldom enough to read.
LOG_INTERVAL = 10.0


class Terminal(Protocol):
    """Shows a run; entered before the first stage and left after the last."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def stage_started(self, number: int, total: int, name: str) -> None:
        """A stage begins to compute."""

    def stage_finished(self, number: int, total: int, name: str, seconds: float, *, reused: bool) -> None:
        """A stage's output is there, computed in `seconds` now or, if `reused`, earlier."""

    def say(self, message: str) -> None:
        """A line that is neither a stage nor an event."""

    def event(self, event: Event, *, stored: bool = False) -> None:
        """An event of the running stage, or of the time when its stored output was made."""

    def track(self, what: str, total: int) -> AbstractContextManager[Advance]:
        """Progress over `total` steps of `what`."""


class LogTerminal:
    """Plain lines with a UTC time stamp.

    Args:
        stream: Where the lines go.
        clock: Seconds that only grow; for tests.
    """

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock

    def __enter__(self) -> Self:
        """Nothing to prepare."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to clean up."""

    def stage_started(self, number: int, total: int, name: str) -> None:
        """A line when a stage begins."""
        self.say(f"[{number}/{total}] {name}: started")

    def stage_finished(self, number: int, total: int, name: str, seconds: float, *, reused: bool) -> None:
        """A line when a stage is there."""
        how = "from the store" if reused else f"done in {duration(seconds)}"
        self.say(f"[{number}/{total}] {name}: {how}")

    def say(self, message: str) -> None:
        """One dated line."""
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        # A log that cannot be written any more is no reason to give the work up: the report says it all.
        with suppress(OSError):
            print(f"{stamp} {message}", file=self._stream, flush=True)

    def event(self, event: Event, *, stored: bool = False) -> None:
        """One line per event."""
        when = " (from the store)" if stored else ""
        self.say(f"event {event.code}{when}: {event.message}")

    @contextmanager
    def track(self, what: str, total: int) -> Iterator[Advance]:
        """A line every `LOG_INTERVAL` seconds, with the time left at the mean pace so far."""
        begun = shown = self._clock()
        done = 0

        def advance(steps: int) -> None:
            nonlocal done, shown
            done += steps
            now = self._clock()
            if now - shown >= LOG_INTERVAL and 0 < done < total:
                left = (now - begun) / done * (total - done)
                self.say(f"  {what}: {done}/{total}, {duration(left)} left")
                shown = now

        yield advance


class BarTerminal:
    """Live bars with the time left, for a person at a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )

    def __enter__(self) -> Self:
        """Start the live display."""
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the live display, whatever happened; a terminal that was closed needs none."""
        with suppress(OSError):
            self._progress.stop()

    def stage_started(self, number: int, total: int, name: str) -> None:
        """A spinner with the elapsed time until the stage is there."""
        for task in self._progress.task_ids:
            self._progress.remove_task(task)
        self._progress.add_task(f"[{number}/{total}] [bold]{escape(name)}[/]", total=None)

    def stage_finished(self, number: int, total: int, name: str, seconds: float, *, reused: bool) -> None:
        """A permanent line for the stage."""
        for task in self._progress.task_ids:
            self._progress.remove_task(task)
        how = "[dim]from the store[/]" if reused else duration(seconds)
        self.say_markup(f"[green]✓[/] [{number}/{total}] {escape(name)}  {how}")

    def say(self, message: str) -> None:
        """A permanent line."""
        self.say_markup(escape(message))

    def say_markup(self, markup: str) -> None:
        """A permanent line in rich's markup."""
        self._progress.console.print(markup, highlight=False)

    def event(self, event: Event, *, stored: bool = False) -> None:
        """A permanent, marked line per event."""
        when = " [dim](from the store)[/]" if stored else ""
        self.say_markup(f"  [yellow]![/] [yellow]{escape(event.code)}[/]{when}: {escape(event.message)}")

    @contextmanager
    def track(self, what: str, total: int) -> Iterator[Advance]:
        """A bar below the stage's."""
        task = self._progress.add_task(f"  {escape(what)}", total=total)
        try:
            yield lambda steps: self._progress.advance(task, steps)
        finally:
            if task in self._progress.task_ids:
                self._progress.remove_task(task)


class QuietTerminal(LogTerminal):
    """Shows nothing at all while the run works."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def say(self, message: str) -> None:
        """Keep still."""


def terminal_for(*, quiet: bool) -> Terminal:
    """What fits where standard error goes: bars for a person, dated lines for a log."""
    if quiet:
        return QuietTerminal()
    console = Console(stderr=True)
    return BarTerminal(console) if console.is_terminal else LogTerminal(sys.stderr)


def duration(seconds: float) -> str:
    """Seconds as people say them: `0.4 s`, `52 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
