"""A time budget: a run stops by itself, resumable, before a job scheduler would kill it."""

import re
import time
from collections.abc import Callable

from quantflow.errors import QuantFlowError, RecipeError
from quantflow.pipeline.terminal import duration

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class DeadlineError(QuantFlowError):
    """The time budget is used up; what was computed is kept."""


class Deadline:
    """When a run has to stop.

    Args:
        seconds: Time budget from now; None for no limit.
        clock: Seconds that only grow; for tests.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget = seconds
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds

    def check(self) -> None:
        """Called between two steps of work.

        Raises:
            DeadlineError: The time is up.
        """
        if self._end is not None and self._budget is not None and self._clock() >= self._end:
            raise DeadlineError(
                f"the time limit of {duration(self._budget)} is reached",
                hint="What is finished is kept, to the last block or batch: the same command goes on from "
                "there.",
            )


def parse_duration(text: str, option: str = "--time-limit") -> float:
    """Seconds of `90s`, `30m`, `6h`, `1d`.

    Args:
        text: What the user wrote.
        option: Where, for the message.

    Raises:
        RecipeError: It is not such a duration.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if match is None or float(match[1]) == 0:
        raise RecipeError(f"{text!r} is no duration", where=option, hint="Write 90s, 30m, 6h or 1d.")
    return float(match[1]) * SECONDS[match[2]]
