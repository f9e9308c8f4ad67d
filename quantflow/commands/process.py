"""What every command shares as a process: signals that interrupt it, and streams that may be broken."""

import atexit
import os
import signal
import time
from contextlib import suppress
from types import FrameType
from typing import TextIO

# Ctrl-C, a job scheduler's warning, a closed terminal: all of them ask to stop and be able to go on.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds in which further signals say nothing new: people press Ctrl-C twice, schedulers repeat themselves.
REPEAT_SECONDS = 3.0

_last_interrupt = float("-inf")


def take_signals() -> None:
    """Let each of `SIGNALS` interrupt the command, unless it was started with it ignored, as by `nohup`.

    When Python ends they are ignored: what is left is its own tidying up, and the outcome stands.
    """
    atexit.register(_ignore_signals)
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _ignore_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def discard_output(stream: TextIO) -> None:
    """Send what a broken stream still holds nowhere, so that Python's end does not fail on it."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _last_interrupt
    now = time.monotonic()
    if now - _last_interrupt > REPEAT_SECONDS:
        _last_interrupt = now
        raise KeyboardInterrupt
