import io
import re

import pytest
from rich.console import Console

from quantflow.pipeline.events import Event
from quantflow.pipeline.terminal import BarTerminal, LogTerminal, QuietTerminal, duration


def test_log_lines_carry_a_utc_time_stamp() -> None:
    out = io.StringIO()
    LogTerminal(out).stage_started(1, 3, "source")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \[1/3\] source: started\n", out.getvalue())


def test_log_progress_says_how_far_and_how_long() -> None:
    out, now = io.StringIO(), [0.0]
    terminal = LogTerminal(out, clock=lambda: now[0])
    with terminal.track("blocks", 30) as advance:
        for _ in range(30):
            now[0] += 4.0
            advance(1)
    lines = out.getvalue().splitlines()
    assert lines[0].endswith("blocks: 3/30, 1 min 48 s left")
    assert len(lines) == 9


def test_quiet_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    terminal = QuietTerminal()
    terminal.stage_started(1, 1, "source")
    terminal.event(Event(code="a", stage="source", message="b"))
    with terminal.track("blocks", 2) as advance:
        advance(2)
    assert capfd.readouterr() == ("", "")


def test_bars_end_and_text_from_models_is_not_taken_for_markup() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with BarTerminal(console) as terminal:
        terminal.stage_started(1, 1, "source")
        terminal.event(Event(code="odd", stage="source", message="[/bold] [red]"))
        with terminal.track("[x]", 2) as advance:
            advance(2)
        terminal.stage_finished(1, 1, "source", 3.2, reused=False)
    assert isinstance(console.file, io.StringIO)
    assert "[/bold] [red]" in console.file.getvalue()


def test_durations_read_as_people_say_them() -> None:
    assert [duration(s) for s in (0.42, 52, 59.7, 200, 7500)] == [
        "0.4 s",
        "52 s",
        "1 min 00 s",
        "3 min 20 s",
        "2 h 05 min",
    ]
